"""Generated code of `reput.commitlog`."""
