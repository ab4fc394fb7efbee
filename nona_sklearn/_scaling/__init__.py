"""Banks that are too large for one pass: an index, and shards."""
