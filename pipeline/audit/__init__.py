"""The job `audit`: log, queues and indexes compared."""
