"""The interfaces through which queries ask shards, and their values. Pure."""
