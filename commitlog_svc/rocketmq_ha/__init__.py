"""RocketMQ's HA protocol, both ways: this log as the slave of a broker, and as the master of one (docs/adr/0064)."""
