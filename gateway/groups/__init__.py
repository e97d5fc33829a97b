"""Consumer groups over all shards: their settings, positions, lag, dead letters, and what became of a message."""
