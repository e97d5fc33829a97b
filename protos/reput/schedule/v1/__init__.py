"""Generated code of `reput.schedule.v1`."""
