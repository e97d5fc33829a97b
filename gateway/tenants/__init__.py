"""Quotas of namespaces (docs/tenants.md, ADR 0173)."""
