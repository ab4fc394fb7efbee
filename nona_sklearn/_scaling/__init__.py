"""Banks that are too large for one file or one machine: shards."""
