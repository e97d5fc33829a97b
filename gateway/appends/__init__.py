"""Forwards appends to the shards: collects small ones, chooses shards, splits requests."""
