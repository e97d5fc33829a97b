"""`reput cluster`: a coordinator, the replicas of one shard and a gateway on one machine."""
