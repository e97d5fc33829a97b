"""The index of timers."""
