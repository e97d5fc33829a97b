"""Formats of what consumers and waiting messages need: positions, POP checkpoints, handles, delay levels, timers."""
