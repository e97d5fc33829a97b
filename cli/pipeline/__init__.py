"""The verbs of `reput pipeline`, one a file."""
