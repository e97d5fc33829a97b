"""Generated code of `reput.nameserver.v1`."""
