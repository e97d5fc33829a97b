"""Generated code of `reput.consumer.v1`."""
