"""How messages get to consumers and come back: pop, pull, acknowledgements, expiry, retries and dead letters."""
