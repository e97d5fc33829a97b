"""The job `rebuild`: queues and indexes made from the log."""
