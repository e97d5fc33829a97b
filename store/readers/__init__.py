"""Read-only access to log files, queues and indexes."""
