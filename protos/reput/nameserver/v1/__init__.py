"""Generated code of `reput.index.v1`."""
