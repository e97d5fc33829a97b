"""What several test folders share: fixture stores, stacks of processes, doubles."""
