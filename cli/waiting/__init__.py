"""Messages that wait for a time or for the verdict of their transaction."""
