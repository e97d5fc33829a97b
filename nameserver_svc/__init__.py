"""The name server: which brokers have which topics, over remoting and gRPC."""
