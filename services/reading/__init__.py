"""What delivery reads: units of queues, records of the log, and arrivals of new ones."""
