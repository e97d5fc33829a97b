"""What the console can do: one subject a file."""
