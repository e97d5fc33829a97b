"""Clients of all doors that go on while services die: sends by three protocols, pops over gRPC, members over remoting.

What their calls did is noted with its times, so that a judge can say what the services had promised meanwhile.
"""

import contextlib
import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from services.calling.client import ServiceClient
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rpcs import consumer as rpc
from services.status import from_rpc_error
from store.errors import ServiceUnavailableError
from store.format.properties import LITE_TOPIC, SHARDING_KEY
from tests.gateway.remoting.one_group import RemotingMember, Seen
from tests.gateway.remoting.requests import V2, DoorClient, lock_body, properties, send_fields
from tests.support.service import CHANNEL_OPTIONS
from tests.support.waiting import WAIT_SECONDS_MAX

CALL_SECONDS_MAX = 5.0
# A call is asked again for so long: services are killed and started again.
AGAIN_SECONDS_MAX = WAIT_SECONDS_MAX
PAUSE_SECONDS = 0.05
BEAT_SECONDS = 1.0
LOCK_SECONDS = 0.5
PASSING = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)


class Door:
    """The remoting door of a gateway that is killed and started again at the same addresses.

    Args:
        address: of the door.
        target: of the gateway.
    """

    def __init__(self, address: str, target: str) -> None:
        self.address = address
        self.target = target

    def client(self) -> DoorClient:
        """A new connection, as soon as one can be made."""
        gives_up = time.monotonic() + AGAIN_SECONDS_MAX
        while True:
            try:
                return DoorClient(self.address)
            except OSError:
                if time.monotonic() > gives_up:
                    raise
                time.sleep(PAUSE_SECONDS)  # the gateway is being started again


class ThreeSenders:
    """Sends a message by one of three protocols, once.

    Args:
        gateway: its address.
        door: over remoting.
        is_lite: what a message is sent with is its lite topic, in place of its message group.
        flush: when messages of the first protocol are answered; the others leave it to the store.
    """

    def __init__(
        self,
        gateway: str,
        door: Door,
        *,
        is_lite: bool = False,
        flush: message_pb2.FlushMode = message_pb2.FLUSH_MODE_SYNC,
    ) -> None:
        self._door = door
        self._flush = flush
        self._property = LITE_TOPIC if is_lite else SHARDING_KEY
        self._is_lite = is_lite
        self._client: DoorClient | None = None
        self._channel = grpc.insecure_channel(gateway, options=CHANNEL_OPTIONS)
        self.ways = (self._by_gateway, self._by_grpc, self._by_remoting)

    def close(self) -> None:
        """No send any more."""
        self._channel.close()
        if self._client is not None:
            self._client.close()

    def _by_gateway(self, topic: str, name: str, message_group: str) -> bool:
        message = message_pb2.NewMessage(
            topic=topic, body=f"{name}|".encode(), properties={self._property: message_group}
        )
        request = gateway_pb.AppendMessagesRequest(messages=[message], flush=self._flush)
        stub = gateway_grpc.GatewayServiceStub(self._channel)
        with contextlib.suppress(grpc.RpcError):
            stub.AppendMessages(request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)
            return True
        return False

    def _by_grpc(self, topic: str, name: str, message_group: str) -> bool:
        message = v2.Message(topic=v2.Resource(name=topic), body=f"{name}|".encode())
        system = message.system_properties
        system.message_id = name
        if self._is_lite:
            system.message_type, system.lite_topic = v2.LITE, message_group
        else:
            system.message_type, system.message_group = v2.FIFO, message_group
        stub = v2_grpc.MessagingServiceStub(self._channel)
        with contextlib.suppress(grpc.RpcError):
            request = v2.SendMessageRequest(messages=[message])
            answer = stub.SendMessage(request, timeout=CALL_SECONDS_MAX, metadata=_as("sender"), wait_for_ready=True)
            return answer.status.code == v2.OK
        return False

    def _by_remoting(self, topic: str, name: str, message_group: str) -> bool:
        if self._client is None:
            self._client = self._door.client()
        texts = properties(UNIQ_KEY=name, WAIT="true", **{self._property: message_group})
        fields = send_fields(topic, queueId=ord(message_group) % 2, properties=texts)
        try:
            return self._client.call(V2, f"{name}|".encode(), **fields).code == 0
        except OSError:
            self._client.close()
            self._client = None
            return False


class Popped(NamedTuple):
    """A message that a pop gave."""

    name: str
    handle: str
    attempt: int


def _name(body: bytes) -> str:
    return body.decode().rstrip("|")


def _as(client_id: str) -> tuple[tuple[str, str], ...]:
    return ("x-mq-client-id", client_id), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.2.0")


class ServicePops:
    """Calls of the consumer service for one that pops.

    Args:
        address: of the service.
        topic: the topic.
        client_id: of a client of lite topics below it; empty: it pops the topic itself.
    """

    def __init__(self, address: str, topic: str, client_id: str = "") -> None:
        self._topic = topic
        self._client_id = client_id
        self._client = ServiceClient("consumer", address)

    def close(self) -> None:
        """No call any more."""
        self._client.close()

    def pop(self, group: str, count: int, invisible: Duration, per_group_max: int) -> list[Popped]:
        """What a pop gives; StoreError."""
        request = pb.PopMessagesRequest(
            consumer_group=group,
            topic=self._topic,
            max_messages=count,
            invisible_duration=invisible,
            max_per_message_group=per_group_max,
            client_id=self._client_id,
            is_lite=bool(self._client_id),
        )
        found = self._client.call(rpc.POP_MESSAGES, request, CALL_SECONDS_MAX).deliveries
        return [Popped(_name(each.message.body), each.receipt_handle, each.delivery_attempt) for each in found]

    def ack(self, group: str, handle: str) -> bool:
        """Whether it counts; StoreError."""
        request = pb.AckMessagesRequest(consumer_group=group, receipt_handles=[handle])
        outcomes = self._client.call(rpc.ACK_MESSAGES, request, CALL_SECONDS_MAX).outcomes
        return outcomes[0] == pb.AckMessagesResponse.OUTCOME_OK

    def hide(self, group: str, handle: str, invisible: Duration) -> None:
        """For so long; StoreError."""
        request = pb.ChangeInvisibleDurationRequest(
            consumer_group=group, receipt_handle=handle, invisible_duration=invisible
        )
        self._client.call(rpc.CHANGE_INVISIBLE_DURATION, request, CALL_SECONDS_MAX)

    def give_up(self, group: str, handle: str) -> None:
        """It becomes a dead letter; StoreError."""
        request = pb.ForwardToDeadLetterTopicRequest(consumer_group=group, receipt_handle=handle)
        self._client.call(rpc.FORWARD_TO_DEAD_LETTER_TOPIC, request, CALL_SECONDS_MAX)

    def name_lite_topics(self, group: str, names: Iterable[str], *, is_all: bool) -> None:
        """Subscribe to lite topics, too, or to all that the client wants; StoreError."""
        request = pb.SyncLiteSubscriptionRequest(
            consumer_group=group,
            topic=self._topic,
            client_id=self._client_id,
            action=pb.LITE_ACTION_COMPLETE_ADD if is_all else pb.LITE_ACTION_PARTIAL_ADD,
            lite_topics=names,
        )
        self._client.call(rpc.SYNC_LITE_SUBSCRIPTION, request, CALL_SECONDS_MAX)


class GrpcPops:
    """The same over RocketMQ's gRPC protocol."""

    def __init__(self, gateway: str, topic: str, client_id: str) -> None:
        self._topic = v2.Resource(name=topic)
        self._metadata = _as(client_id)
        self._channel = grpc.insecure_channel(gateway, options=CHANNEL_OPTIONS)
        self._stub = v2_grpc.MessagingServiceStub(self._channel)

    def close(self) -> None:
        """No call any more."""
        self._channel.close()

    def pop(self, group: str, count: int, invisible: Duration, per_group_max: int) -> list[Popped]:
        """What a poll gives, which may be several messages of a message group; StoreError."""
        request = v2.ReceiveMessageRequest(
            group=v2.Resource(name=group),
            batch_size=count,
            invisible_duration=invisible,
            long_polling_timeout=Duration(nanos=100_000_000),
        )
        request.message_queue.topic.CopyFrom(self._topic)
        request.message_queue.broker.name = "broker-a"
        request.filter_expression.expression = "*"
        try:
            answers = list(self._stub.ReceiveMessage(request, timeout=CALL_SECONDS_MAX, metadata=self._metadata))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        found = [answer.message for answer in answers if answer.HasField("message")]
        rows = [(_name(each.body), each.system_properties) for each in found]
        return [Popped(name, of.receipt_handle, of.delivery_attempt) for name, of in rows]

    def ack(self, group: str, handle: str) -> bool:
        """Whether it counts; StoreError."""
        entry = v2.AckMessageEntry(receipt_handle=handle)
        request = v2.AckMessageRequest(group=v2.Resource(name=group), topic=self._topic, entries=[entry])
        status = self._call("AckMessage", request).status
        if status.code not in (v2.OK, v2.INVALID_RECEIPT_HANDLE):  # such as PROXY_TIMEOUT: it may count
            raise ServiceUnavailableError(f"{v2.Code.Name(status.code)}: {status.message}", service="gateway")
        return status.code == v2.OK

    def hide(self, group: str, handle: str, invisible: Duration) -> None:
        """For so long; StoreError."""
        request = v2.ChangeInvisibleDurationRequest(
            group=v2.Resource(name=group), topic=self._topic, receipt_handle=handle, invisible_duration=invisible
        )
        self._call("ChangeInvisibleDuration", request)

    def give_up(self, group: str, handle: str) -> None:
        """It becomes a dead letter; StoreError."""
        request = v2.ForwardMessageToDeadLetterQueueRequest(
            group=v2.Resource(name=group), topic=self._topic, receipt_handle=handle
        )
        self._call("ForwardMessageToDeadLetterQueue", request)

    def name_lite_topics(self, group: str, names: Iterable[str], *, is_all: bool) -> None:
        """Subscribe to lite topics, too, or to all that the client wants; StoreError."""
        request = v2.SyncLiteSubscriptionRequest(
            action=v2.COMPLETE_ADD if is_all else v2.PARTIAL_ADD,
            topic=self._topic,
            group=v2.Resource(name=group),
            lite_topic_set=names,
        )
        status = self._call("SyncLiteSubscription", request).status
        if status.code != v2.OK:
            raise ServiceUnavailableError(f"{v2.Code.Name(status.code)}: {status.message}", service="gateway")

    def _call(self, method: str, request: object):
        try:
            return getattr(self._stub, method)(request, timeout=CALL_SECONDS_MAX, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None


@dataclass(slots=True)
class PositionCall:
    """A position that was stored or asked for, and when (seconds); `answered` is endless for one without an answer."""

    is_store: bool
    position: int
    began: float
    answered: float


class Positions:
    """What members said and were told of the positions of a group, by queue; thread-safe."""

    def __init__(self) -> None:
        self.turned_back: list[str] = []
        self._lock = threading.Lock()
        self._calls: defaultdict[tuple[str, int], list[PositionCall]] = defaultdict(list)

    def note(self, queue: tuple[str, int], call: PositionCall) -> None:
        """A call, when it is over."""
        with self._lock:
            self._calls[queue].append(call)

    def problems(self) -> list[str]:
        """Answers that are no position which could be the last one stored then."""
        return self.turned_back + [
            f"the position of {queue} is told as {read.position} at {read.answered:.3f}, which is not stored any more"
            for queue, calls in self._calls.items()
            for read in calls
            if not read.is_store and not may_tell(read, [call for call in calls if call.is_store])
        ]


def may_tell(read: PositionCall, stores: Sequence[PositionCall]) -> bool:
    """Whether a store of what was told began before the answer, and no other one came between for certain."""
    before = [store for store in stores if store.answered < read.began]
    start = max((store.began for store in before), default=-math.inf)
    if read.position == 0 and not before:
        return True
    return any(
        store.position == read.position and store.began < read.answered and store.answered > start for store in stores
    )


class LastingMember(RemotingMember):
    """A member over remoting that connects and asks again, and divides the queues each second."""

    def __init__(self, door: Door, group, topic, queue_count, client_id, seen, seed, positions=None):
        self._door = door
        self._known_positions = positions or Positions()
        self._beats_at = 0.0
        super().__init__(door, group, topic, queue_count, client_id, seen, seed)

    def _ask(self, code, body=b"", **fields):
        gives_up = time.monotonic() + AGAIN_SECONDS_MAX
        while True:
            began, answer = time.monotonic(), None
            with contextlib.suppress(OSError):
                answer = self._client.call(code, body, **fields)
            self._note(code, fields, answer, began)
            if answer is not None and answer.code not in PASSING:
                return answer
            assert time.monotonic() < gives_up, f"{code!r} is answered {answer} for {AGAIN_SECONDS_MAX:.0f} s"
            if answer is None:
                self._client.close()
                self._client = self._door.client()
                self._beats_at = 0.0
            else:
                time.sleep(PAUSE_SECONDS)  # a service is being started again

    def _note(self, code, fields, answer, began):
        is_store = code == RequestCode.UPDATE_CONSUMER_OFFSET
        if not is_store and (code != RequestCode.QUERY_CONSUMER_OFFSET or answer is None or answer.code in PASSING):
            return
        answered = math.inf if answer is None or answer.code else time.monotonic()
        position = int(fields["commitOffset"] if is_store else answer.fields.get("offset", "0"))
        call = PositionCall(is_store, position, began, answered if is_store else time.monotonic())
        self._known_positions.note((fields["topic"], fields["queueId"]), call)

    def _pull(self, queue):
        before = self._positions[queue]
        has_found = super()._pull(queue)
        if self._positions[queue] < before:
            self._known_positions.turned_back.append(f"a pull of {queue} at {before} led to {self._positions[queue]}")
        return has_found

    def _is_told(self):
        return super()._is_told() or time.monotonic() >= self._beats_at

    def _members(self):
        client_id = self._names[2]
        while True:
            self.beat()
            self._beats_at = time.monotonic() + BEAT_SECONDS
            answer = self._ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=self._names[0])
            # A consumer service that has just begun knows of no member before its heartbeat.
            members = json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
            if client_id in members:
                return members


class SeenInOrder(Seen):
    """The same of a group that processes each queue in order."""

    def __init__(self):
        super().__init__()
        self.problems = []
        self.again_count = 0
        self._ends = Counter()

    def note_in_order(self, queue, queue_offset):
        """A message is processed: all before it in its queue must have been."""
        with self._lock:
            if queue_offset > self._ends[queue]:
                self.problems.append(f"{queue_offset} of {queue} came before {self._ends[queue]}")
            self.again_count += queue_offset < self._ends[queue]
            self._ends[queue] = max(self._ends[queue], queue_offset + 1)


class OrderlyMember(LastingMember):
    """The same, as MessageListenerOrderly: it pulls only from queues that it has locked."""

    def __init__(self, *args, **options):
        self._locked_until = {}
        super().__init__(*args, **options)
        self._queues = self._queues[:1]

    def fails(self):
        return False

    def _store(self, queue):
        super()._store(queue)
        self._position(queue)  # what it is told is judged

    def _takes(self, queue):
        began = time.monotonic()
        answer = self._ask(RequestCode.LOCK_BATCH_MQ, lock_body(self._names[2], self._names[0], *queue))
        if not json.loads(answer.body)["lockOKMQSet"]:
            return False
        self._locked_until[queue] = began + LOCK_SECONDS
        return True

    def _let_go(self, queue):
        self._ask(RequestCode.UNLOCK_BATCH_MQ, lock_body(self._names[2], self._names[0], *queue))

    def _pull(self, queue):
        if time.monotonic() >= self._locked_until[queue] and not self._takes(queue):
            del self._positions[queue]
            return False
        return super()._pull(queue)

    def _process(self, record):
        self.seen.note_in_order((record.topic, record.queue_id), record.queue_offset)
        super()._process(record)
