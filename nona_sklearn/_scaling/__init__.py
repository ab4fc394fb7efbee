"""Shards of banks that are too large for one file or one machine."""
