"""The service that keeps messages that wait, for a time or for a verdict, and appends them when they are due."""
