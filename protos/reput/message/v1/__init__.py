"""Generated code of `reput.message.v1`."""
