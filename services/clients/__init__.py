"""Typed clients, one for each service."""
