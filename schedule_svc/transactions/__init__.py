"""Half messages that wait for a verdict: verdicts, check-back, and what gives up."""
