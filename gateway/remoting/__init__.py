"""RocketMQ's remoting protocol, for clients that know a name server: a translation onto what the other doors use."""
