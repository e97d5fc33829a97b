"""What the command prints: tables, times, bodies, formats, progress."""
