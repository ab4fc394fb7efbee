"""The version, which a release writes."""

__version__ = "0.3.0.dev0"
