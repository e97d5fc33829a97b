"""One small versioned document of a shard, kept by an existing engine that decides who writes it: etcd or Kubernetes."""
