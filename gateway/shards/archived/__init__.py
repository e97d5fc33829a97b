"""A shard whose dropped records are read from an archive."""
