"""Formats of what follows from the log: units of queues, entries of the index, summaries."""
