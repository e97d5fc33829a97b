"""Fixed-size files, queues of them, locks and markers. Knows nothing about messages."""
