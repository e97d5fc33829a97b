"""The key index of one shard: from topic and key to candidate records."""
