"""The query modes, one in each file, over the ports of a shard. Pure."""
