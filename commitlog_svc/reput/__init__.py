"""What followers of the log read and report."""
