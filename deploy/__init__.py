"""How the services are started together."""
