"""Shards: names of ``_scaling`` for tests."""

from nona_sklearn._scaling import building, partitions, sharded
