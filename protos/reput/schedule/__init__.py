"""Generated code of `reput.schedule`."""
