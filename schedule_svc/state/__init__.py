"""What is done of the messages that wait, as records of the log."""
