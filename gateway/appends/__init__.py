"""Appends on their way to the shards: gathered, routed, spread, forwarded."""
