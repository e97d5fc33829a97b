"""Generated code of `reput.consumequeue.v1`."""
