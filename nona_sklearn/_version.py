"""The version, which a release writes."""

__version__ = "0.4.0.dev0"
