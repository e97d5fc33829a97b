"""From an append request to bytes on the disk."""
