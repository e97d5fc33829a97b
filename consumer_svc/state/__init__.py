"""What consumer groups have: their queues, leases and waiting messages; as changes, as records of the log, and in memory."""
