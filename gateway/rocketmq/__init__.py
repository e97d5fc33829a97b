"""RocketMQ's own gRPC contract, `apache.rocketmq.v2`: the methods for sending and finding messages.

Only this package uses the contract's in-body Status.
"""
