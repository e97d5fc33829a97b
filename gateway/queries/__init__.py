"""The four query modes, one a file, pure over `gateway.ports`."""
