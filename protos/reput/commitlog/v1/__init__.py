"""Generated code of `reput.commitlog.v1`."""
