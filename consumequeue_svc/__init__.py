"""The consume queues of one shard: from a topic's queue and position to the log."""
