"""Generated code of `reput.consumequeue`."""
