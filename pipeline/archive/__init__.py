"""The jobs `archive`, `query` and `restore`."""
