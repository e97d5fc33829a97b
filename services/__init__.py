"""What every service shares as a citizen of the network: being served, being called, tailing, errors, settings."""
