"""Generated code of `reput.gateway.v1`."""
