"""What a shard says of its store as a whole, beside each query of it."""
