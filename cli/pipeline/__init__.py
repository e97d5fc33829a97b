"""The verbs of `reput pipeline`."""
