"""The verbs that have the names and the flags of mqadmin of RocketMQ 5.5.0."""
