"""The job `analytics`: statistics of a log, as tables and as an HTML page."""
