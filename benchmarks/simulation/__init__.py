"""Gateways over up to a thousand shards, in virtual time: see benchmarks/simulate.py."""
