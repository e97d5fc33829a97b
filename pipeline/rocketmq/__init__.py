"""format("rocketmq"): topics over the gateway as rows."""
