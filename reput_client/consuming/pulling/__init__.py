"""Pulling: queues read by position, shared among the members of a group."""
