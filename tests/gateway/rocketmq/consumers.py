"""A gateway whose shards deliver from memory, and the calls of a consumer."""

import contextlib
import threading
from functools import partial

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.appends.forwarder import AppendForwarder
from gateway.auth.caller_shards import check_group
from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.shards import FanOut, Shards
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.receiving import DEFAULT_LIMITS
from gateway.rocketmq.servicer import MessagingServicer, WaitingMessages, add_messaging_to_server
from gateway.settings import GatewaySettings
from gateway.waiting.endings import Endings
from gateway.waiting.keeping import ProducerKeeping
from gateway.waiting.producers import Producers
from gateway.waiting.shards import SchedulingShards
from services.serving.server import ServiceServer
from tests.gateway.delivery.memory_delivery import QUEUE_COUNT
from tests.gateway.memory_shard import MemoryShard
from tests.support.waiting import WAIT_SECONDS_MAX

ENDPOINTS = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="10.0.0.1", port=80)])
TOPIC = "Orders"
GROUP = "billing"
WORKER_COUNT = 16


class Consumer:
    """A client of the gateway; an official one makes the same calls."""

    def __init__(self, address, client_id="client-1", language="JAVA", version="5.0.7", group=GROUP, topic=TOPIC):
        self.channel = grpc.insecure_channel(
            address, [("grpc.use_local_subchannel_pool", 1)]
        )  # a connection of its own
        self.stub = v2_grpc.MessagingServiceStub(self.channel)
        self.metadata = [("x-mq-client-id", client_id), ("x-mq-language", language), ("x-mq-client-version", version)]
        if not client_id:
            self.metadata.pop(0)
        self.group = v2.Resource(name=group)
        self.topic = v2.Resource(name=topic)

    def call(self, method, request, timeout=WAIT_SECONDS_MAX):
        return getattr(self.stub, method)(request, timeout=timeout, metadata=self.metadata)

    def poll(self, *, seconds=20, timeout=WAIT_SECONDS_MAX, broker="broker-a", invisible=30, **fields):
        request = v2.ReceiveMessageRequest(
            group=self.group,
            message_queue=v2.MessageQueue(topic=self.topic, broker=v2.Broker(name=broker)),
            long_polling_timeout=Duration(seconds=seconds),
            **fields,
        )
        if not request.auto_renew:
            request.invisible_duration.FromSeconds(invisible)
        return self.call("ReceiveMessage", request, timeout)

    def receive(self, **options):
        """The code, and the messages."""
        answers = list(self.poll(**options))
        assert answers[0].WhichOneof("content") == "status"
        assert answers[-1].WhichOneof("content") == "delivery_timestamp"
        assert {answer.WhichOneof("content") for answer in answers[1:-1]} <= {"message"}
        return answers[0].status.code, [answer.message for answer in answers[1:-1]]

    def acks(self, *handles):
        entries = [v2.AckMessageEntry(message_id=f"id-{n}", receipt_handle=handle) for n, handle in enumerate(handles)]
        return v2.AckMessageRequest(group=self.group, topic=self.topic, entries=entries)

    def ack(self, *handles):
        return self.call("AckMessage", self.acks(*handles))

    def change(self, handle, seconds):
        request = v2.ChangeInvisibleDurationRequest(
            group=self.group, topic=self.topic, receipt_handle=handle, invisible_duration=Duration(seconds=seconds)
        )
        return self.call("ChangeInvisibleDuration", request)

    def forward(self, handle):
        request = v2.ForwardMessageToDeadLetterQueueRequest(group=self.group, topic=self.topic, receipt_handle=handle)
        return self.call("ForwardMessageToDeadLetterQueue", request)

    def settings(self, client_type=v2.PUSH_CONSUMER, **fields):
        subscription = v2.Subscription(group=self.group, subscriptions=[v2.SubscriptionEntry(topic=self.topic)])
        return v2.Settings(client_type=client_type, subscription=subscription, **fields)

    def tell(self, *settings):
        """The answers to settings on one Telemetry stream."""
        commands = [v2.TelemetryCommand(settings=each) for each in settings]
        return list(self.call("Telemetry", iter(commands)))


class Gateway:
    """What a test needs of it."""

    def __init__(self, address, room, clients, delivering, server, members):
        self.address = address
        self.room = room
        self.clients = clients
        self.members = members
        self.delivering = delivering
        self.server = server

    def consumer(self, **options):
        return Consumer(self.address, **options)


def memory(records):
    shard = MemoryShard(list(records))
    shard.topics[TOPIC] = QUEUE_COUNT
    return shard


@contextlib.contextmanager
def serving(*shards, records=(), guard=None, scheduling=(), limits=DEFAULT_LIMITS, keepers=None):
    """A gateway in front of shards that deliver from memory (MemoryDelivering, MemoryScheduling; MemoryGroups by shard)."""
    fan_out = FanOut(2)
    timers = Timers()
    room = WaitingRoom(timers)
    delivering = DeliveryShards(room)
    clients = Clients(delivering)
    members = MessagingMembers(clients, timers)
    delivering.on_arrivals.append(members.hear)
    producers = Producers()
    scheduled = SchedulingShards(producers, "gateway-1")
    keeping = ProducerKeeping(producers, scheduled, "gateway-1")
    bare = [memory(records).shard(shard.broker_name) for shard in shards]
    kept = keepers or {}
    memories = Shards(
        [kept[one.broker_name].in_shard(one) if one.broker_name in kept else one for one in bare], fan_out
    )
    server = ServiceServer("gateway", GatewaySettings(address="127.0.0.1:0", worker_count=WORKER_COUNT))
    if guard is not None:
        server.guard_calls(guard)
    with grpc.insecure_channel("127.0.0.1:1") as backend:
        forwarder = AppendForwarder([backend])
        waiting = WaitingMessages(Endings(scheduled), producers)
        servicer = MessagingServicer(
            memories,
            delivering,
            room,
            clients,
            members,
            server.work,
            waiting=waiting,
            limits=limits,
            check_group=None if guard is None else check_group,
        )
        server.add("m", partial(add_messaging_to_server, forwarder=forwarder), servicer)
        server.on_drain(room.close)
        timers.start()
        clients.start()
        delivering.keep(shards)
        scheduled.keep(scheduling)
        keeping.start()
        address = server.start()
        ended = threading.Thread(target=server.serve_until_stopped)
        ended.start()
        try:
            yield Gateway(address, room, clients, delivering, server, members)
        finally:
            server.stop()
            ended.join()
            servicer.receiving.close()
            clients.close()
            delivering.close()
            keeping.close()
            scheduled.close()
            timers.close()
            forwarder.close()
            fan_out.close()
