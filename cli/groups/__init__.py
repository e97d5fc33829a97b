"""Verbs about consumer groups: what they have, what became of a message, consuming."""
