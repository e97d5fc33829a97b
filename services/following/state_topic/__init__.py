"""The state of a service as records of a topic of its own: written in order, read at the start of a life."""
