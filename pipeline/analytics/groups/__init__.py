"""What consumer groups did, from the log alone: positions, lag, delays, retries and dead letters (ADR 0073)."""
