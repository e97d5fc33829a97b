"""RocketMQ's own gRPC contract, `apache.rocketmq.v2`, as far as senders and searchers need it.

Its in-body Status is spoken here and nowhere else.
"""
