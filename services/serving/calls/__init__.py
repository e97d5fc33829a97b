"""One call through gRPC: how it takes a thread, waits without one, answers bytes, ends."""
