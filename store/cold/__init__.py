"""Sealed log files in an object store: their layout there, and lookups of single messages by point reads."""
