"""Finding messages again, from threads and under asyncio."""
