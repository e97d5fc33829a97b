"""Sign-in of the gateway's clients, their rights, and the audit log."""
