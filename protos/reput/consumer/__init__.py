"""Generated code of `reput.consumer`."""
