"""Auditing a store root: every file against the log, nothing changed."""
