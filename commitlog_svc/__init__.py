"""The commit log of one shard: the only writer of message bytes."""
