"""Generated code of `reput.nameserver`."""
