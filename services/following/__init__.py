"""How a service follows a log and builds files from it."""
