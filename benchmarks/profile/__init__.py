"""Flame graphs of the hot paths: `make profile`."""
