"""A real broker takes over what waits, and gives it back: RocketMQ's files of delay levels, timers and transactions."""
