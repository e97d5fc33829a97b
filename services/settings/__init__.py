"""Where settings come from, what they are called, and how they are checked."""
