"""Generated code of `reput.index`."""
