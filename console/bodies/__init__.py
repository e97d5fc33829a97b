"""Message bodies in readable form."""
