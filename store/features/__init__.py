"""What a store of RocketMQ may use, by which sign each feature is recognised, and what Reput does about it."""
