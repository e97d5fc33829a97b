"""Who leads: the record at the coordinator, the rules, and what a replica knows of it."""
