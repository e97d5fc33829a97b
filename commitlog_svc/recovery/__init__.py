"""Recovery of the log at a start, and the safe points that spare a restart the walk over the whole log."""
