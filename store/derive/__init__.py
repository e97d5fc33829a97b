"""What follows from a record, decided once: its queue unit, its index entries, its dispatch request. Pure."""
