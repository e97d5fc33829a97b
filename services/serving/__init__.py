"""How a process is served: binding, threads, limits, identity, errors around each call."""
