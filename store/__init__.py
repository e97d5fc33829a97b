"""The bytes and files of a RocketMQ message store. No network."""
