"""Long polls that wait without a thread each, and what wakes them. Pure decisions over the port of delivery."""
