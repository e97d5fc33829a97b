"""The audit of a cluster: each replica's store, the replicas of a shard with one another, and with the archive."""
