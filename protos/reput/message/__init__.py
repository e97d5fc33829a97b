"""Generated code of `reput.message`."""
