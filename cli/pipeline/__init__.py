"""The verbs of `reput pipeline`, one in each file."""
