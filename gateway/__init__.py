"""The front door: the only address that a client needs. Owns no file."""
