"""The job that ships sealed log files to the cold tier."""
