"""Generated code of `reput.gateway`."""
