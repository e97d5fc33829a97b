"""The shards: discovery, calls over gRPC, guards against shards that hang, archives, and summaries of indexes."""
