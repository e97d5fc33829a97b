"""The rows of the table, one a module."""
