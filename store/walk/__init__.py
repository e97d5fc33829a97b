"""Walking the records of a log, plain and compiled."""
