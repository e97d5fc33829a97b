"""What a process says to a broker of RocketMQ, and hears from it: its HA protocol and a part of its remoting protocol."""
