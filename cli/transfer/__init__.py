"""`reput export` and `reput import`."""
