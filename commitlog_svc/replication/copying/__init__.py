"""Bytes of the leader's log on their way into this one: the stream's, whole files, and what is cut aside."""
