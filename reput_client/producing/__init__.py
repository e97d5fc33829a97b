"""Sending messages, from threads and under asyncio."""
