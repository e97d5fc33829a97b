"""Messages that wait for a time or for a verdict: what ends their wait, and the questions to producers; pure."""
