"""Calls to other services: channels, retries, typed clients."""
