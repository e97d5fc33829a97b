"""Which log files are removed, and when."""
