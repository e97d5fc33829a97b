"""Consuming: messages pushed to a group, or pulled queue by queue."""
