"""The verbs that ask a gateway."""
