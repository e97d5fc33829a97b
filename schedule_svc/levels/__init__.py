"""Messages that wait by a delay level."""
