"""The version, which a release writes."""

__version__ = "0.2.0"
