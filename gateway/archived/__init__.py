"""The ports of a shard over what it has and what its archive has; `gateway/archive.py` puts them together."""
