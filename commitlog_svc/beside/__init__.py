"""A log that a broker of RocketMQ writes while this service shows it; nothing is written there."""
