"""The service that delivers messages to consumer groups."""
