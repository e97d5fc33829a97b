"""Sends: single messages (10, 310), batches (320), replies (324, 325), messages that consumers send back (36), and the recall
of a message that waits for its time (370).

    frame ──▶ NewMessage with the property string as a broker stores it ──▶ AppendForwarder ──▶ commit log ──▶ Ask.answer

Single sends of one turn of the loop, which are those that one read of each connection has brought, are one append; their
answers go out in one write for each connection (ADR 0129). Where clients do not sign in, a send with a header like an earlier
one is not decoded (repeated_headers.py, ADR 0141): `take` does for it what `send` does.

A send takes no thread, unless it is a batch of more than LOOP_BATCH_BYTES_MAX, or something has to be asked for first: a topic
that the door does not know, or the settings of the group whose retry topic is sent to. An unknown topic is made as by a broker:
with the queues that the request asks for, but not more than the topic has whose place it takes (TBW102), where messages make
topics. A topic without the right to write is refused here; a broker takes the message.

A reply goes to the connection of the client that asked, as a request (PUSH_REPLY_MESSAGE_TO_CLIENT), and is stored as well; how
that client took it is the answer.

A message that is sent again after a lost answer is stored twice, as with RocketMQ.

Sources: `SendMessageProcessor`, `AbstractSendMessageProcessor`, `SendMessageRequestHeaderV2`.
"""

import contextlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import structlog
from google.rpc import status_pb2

from gateway.appends.coalescer import (
    FLUSH_TAG,
    MESSAGE_COUNT_MAX,
    MESSAGES_TAG,
    REQUEST_BYTES_MAX,
    SMALL_REQUEST_BYTES_MAX,
    fail_each,
)
from gateway.appends.forwarder import SmallRequest
from gateway.appends.outcomes import broken
from gateway.groups.asking import ask_groups
from gateway.groups.pulling import send_back
from gateway.ports.deadline import Deadline
from gateway.ports.groups import LIST_GROUPS, attempts_max_of, default_settings
from gateway.ports.shard import get_record
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, OWNED_QUEUE_COUNT, DoorShard
from gateway.remoting.repeated_headers import (
    HEADER_BYTES_MAX,
    LONG_FORM,
    SHORT_FORM,
    Cut,
    RepeatedHeaders,
    cut,
    text_of,
)
from gateway.remoting.topic_copy import Topic
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import ANSWER, FRAME_HEAD_BYTES, JSON, OK, Command, encode_head
from services.rocketmq.remoting_server import Connection
from services.rocketmq.system_topics import AUTO_CREATE_TOPIC
from services.serving.admission.shares import Client
from services.status import from_status, to_status
from store.compiled import loading
from store.errors import (
    BrokerNotFoundError,
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidMessageError,
    NotConfirmedError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
    ScheduledMessageNotFoundError,
    StoreError,
)
from store.format.client_batch import ENTRY_SIZE_BYTES_MIN, decode_client_batch, flag_of_first
from store.format.client_properties import BrokerProperties
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator
from store.format.properties import (
    DELAY,
    PROPERTIES_SIZE_BYTES_MAX,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    parse_properties,
)
from store.format.sys_flag import PRODUCER_MASK
from store.format.topic import (
    NOT_ALLOWED_SEND_TOPICS,
    PERM_INHERIT,
    RETRY_PREFIX,
    dead_letter_topic_of,
    is_system_topic,
    reply_topic_of,
    validate_topic,
)

# The letters of a send's fields in the newer form (`SendMessageRequestHeaderV2`).
LETTERS: Mapping[str, str] = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}
IN_LETTERS = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2))
# Queues of AUTO_CREATE_TOPIC, from which a new topic inherits, where the table does not say.
DEFAULT_QUEUE_COUNT = 8
# Batches that are taken apart in the loop of the connections, which takes 5 ms for so many bytes of tiny messages, and 2 ms for
# the larger ones that the kernel takes; a thread has the others.
LOOP_BATCH_BYTES_MAX, KERNEL_BATCH_BYTES_MAX = 16 << 10, 512 << 10
BATCH_KERNEL = "services.rocketmq.batch_kernel"
# A client that asked has so long to take its reply.
REPLY_SECONDS_MAX = 10.0
# Messages of a batch; RocketMQ has no limit but that of its bytes. More than MESSAGE_COUNT_MAX are several appends.
BATCH_COUNT_MAX = 65_536
# Failures of an append whose messages may be in the log, and stay there.
MAY_BE_STORED = (NotConfirmedError, DeadlineExceededError)
# Of a turn of the loop; more are further appends.
COLLECTED_BYTES_MAX = 1 << 20
_MESSAGES_TAG = bytes((MESSAGES_TAG,))
# Fields 3 and 15 of NewMessage, both length-delimited.
_BODY_TAG, _WIRE_PROPERTIES_TAG = b"\x1a", b"\x7a"
_NO_WAIT = re.compile("(?:^|\x02)WAIT\x01false(?:\x02|$)")

# No field of a request: as the settings of the commit log say.
_FLUSH_AS_SET = message_pb2.FLUSH_MODE_UNSPECIFIED
_FORM_OPAQUE = 987_654_321  # of an answer whose bytes are the form of others
# A text as JSON has it, without escapes where it needs none.
_QUOTED = json.encoder.encode_basestring

_log = structlog.get_logger("reput.remoting")

# Makes the request of a frame.
AskOf: TypeAlias = Callable[[Connection, bytes], Ask]


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    sends = Sends(shard)
    shard.on_turn_ended.append(sends.end_turn)
    shard.takers.append(sends.take)
    return {
        RequestCode.SEND_MESSAGE: sends.send,
        RequestCode.SEND_MESSAGE_V2: sends.send,
        RequestCode.SEND_BATCH_MESSAGE: sends.send,
        RequestCode.SEND_REPLY_MESSAGE: sends.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: sends.reply,
        RequestCode.RECALL_MESSAGE: sends.recall,
        RequestCode.CONSUMER_SEND_MSG_BACK: in_thread(partial(consumer_send_msg_back, shard)),
    }


_SHORT_NAMES = tuple(LETTERS.values())
_LONG_NAMES = tuple(LETTERS)


# Of a number of 32 bits as clients write it.
I32_CHARACTERS_MAX = 11


def _i32_of(text: str | None) -> int:
    """A number of 32 bits; ValueError for another text, for a longer one and for none."""
    if text is None or len(text) > I32_CHARACTERS_MAX:
        raise ValueError("none, or too long")
    return _short_i32_of(text)


@lru_cache(maxsize=1_024)
def _short_i32_of(text: str) -> int:
    number = int(text)
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(text)
    return number


class SendHeader(NamedTuple):
    """The fields of a send."""

    producer_group: str
    topic: str
    default_topic: str
    default_queue_count: int
    queue_id: int
    sys_flag: int
    born_millis: int
    flag: int
    properties: str
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool

    @classmethod
    def of(cls, ask: Ask) -> "SendHeader":
        """The fields of a request; RefusedError for one that is missing or is no number."""
        fields, code = ask.command.fields, ask.command.code
        names = _SHORT_NAMES if code in IN_LETTERS else _LONG_NAMES
        group, topic, model, queues, queue_id, sys_flag, born, flag, properties, times, _, maximum, batch = map(
            fields.get, names
        )
        if group is not None and topic is not None and model is not None:
            with contextlib.suppress(ValueError, TypeError):
                born_millis = int(born)  # type: ignore[arg-type]  # TypeError without it
                if -(1 << 63) <= born_millis < 1 << 63:
                    return cls(
                        *(group, topic, model, _i32_of(queues), _i32_of(queue_id), _i32_of(sys_flag), born_millis),
                        *(_i32_of(flag), properties or "", 0 if times is None else _i32_of(times)),
                        None if maximum is None else _i32_of(maximum),
                        code == RequestCode.SEND_BATCH_MESSAGE or (batch is not None and batch.lower() == "true"),
                    )
        return cls._checked(ask, dict(zip(_LONG_NAMES, names, strict=True)))

    @classmethod
    def _checked(cls, ask: Ask, names: Mapping[str, str]) -> "SendHeader":
        """The same field by field, which refuses by name what is missing or is no number."""
        maximum = names["maxReconsumeTimes"]
        return cls(
            ask.text(names["producerGroup"]),
            ask.text(names["topic"]),
            ask.text(names["defaultTopic"]),
            ask.number(names["defaultTopicQueueNums"]),
            ask.number(names["queueId"]),
            ask.number(names["sysFlag"]),
            ask.number(names["bornTimestamp"]),
            ask.number(names["flag"]),
            ask.text(names["properties"], ""),
            ask.number(names["reconsumeTimes"], 0),
            ask.number(maximum) if maximum in ask.command.fields else None,
            ask.flag(names["batch"]) or ask.command.code == RequestCode.SEND_BATCH_MESSAGE,
        )


class _Known(NamedTuple):
    """What holds for each single send with a frame of a header; see repeated_headers.py.

    Attributes:
        header: of the first one, without its properties and its time.
        topic: whose queues it was checked with.
    """

    header: SendHeader
    topic: Topic


class Sends:
    """Serves sends; thread-safe.

    Args:
        shard: the shard.
    """

    def __init__(self, shard: DoorShard) -> None:
        self._shard = shard
        self._collected: list[SmallRequest] = []  # by the loop of the connections, in its turn
        self._collected_bytes = 0
        self._repeated: RepeatedHeaders[_Known] = RepeatedHeaders()  # for the loop of the connections, too
        self._to_learn: Cut | None = None  # of the frame that is being decoded
        self._properties = BrokerProperties(shard.cluster_name)
        self._always = {"MSG_REGION": self._properties.region, "TRACE_ON": str(self._properties.trace_on).lower()}
        self._answer_form = _answer_form(self._always)
        self._unique_keys = UniqueKeyGenerator(
            "127.0.0.1", os.getpid(), class_loader_hash=zlib.crc32(os.urandom(16)) - (1 << 31)
        )

    def send(self, ask: Ask) -> None:
        """One send; it is answered later, or at once when it is refused."""
        ask.lasting_fields = self._always
        header = SendHeader.of(ask)
        topic = self._shard.topics.find(header.topic)
        if topic is None or header.topic in NOT_ALLOWED_SEND_TOPICS:  # the name of one that is there may be
            _check_topic(header)
        _check_lengths(header)
        ask.rights.appends(header.topic, 1)
        if topic is None or header.topic.startswith(RETRY_PREFIX):
            ask.work(lambda: self._send_later(ask, header))
        elif header.is_batch and len(ask.command.body) > LOOP_BATCH_BYTES_MAX:
            encoded = None
            if len(ask.command.body) <= KERNEL_BATCH_BYTES_MAX:
                encoded = _encoded_parts(ask, header)
            if encoded is None:
                is_tried = len(ask.command.body) <= KERNEL_BATCH_BYTES_MAX
                ask.work(lambda: self._append(ask, header, topic, _Sender(ask, header), is_tried=is_tried))
            else:
                self.end_turn()
                self._append(ask, header, topic, _Sender(ask, header), encoded)
        elif header.is_batch:
            self.end_turn()  # what came before it is offered before it
            self._append(ask, header, topic, _Sender(ask, header))
        else:
            self._collect(ask, header, topic)

    def end_turn(self) -> None:
        """Append the sends that the loop of the connections has collected; called by its thread."""
        collected, self._collected, self._collected_bytes = self._collected, [], 0
        if not collected:
            return
        try:
            self._shard.forwarder.append_small_to(self._shard.broker_name, collected)
        except StoreError as error:
            fail_each([each.caller for each in collected], to_status(error))

    def take(self, connection: Connection, frame: bytes, ask_of: AskOf) -> Callable[[], object] | None:
        """What begins a single send whose header is like an earlier one; None: the frame has to be decoded.

        Args:
            connection, frame: see Take.
            ask_of: makes the request of a frame, for one that is refused.
        """
        self._to_learn = None
        header_end = 4 + int.from_bytes(frame[1:4], "big")
        if frame[0] != JSON or header_end > HEADER_BYTES_MAX or len(frame) > SMALL_REQUEST_BYTES_MAX:
            return None
        if header_end > len(frame):  # the decoder refuses it
            return None
        parts = cut(frame[4:header_end])
        if parts is None:
            return None
        known = self._repeated.kept.get(parts.frame)
        if known is None:
            self._to_learn = parts
            return None
        header, topic = known
        properties = text_of(parts.properties)
        found = self._shard.topics.find(header.topic)
        if (
            properties is None
            or len(properties) > PROPERTIES_SIZE_BYTES_MAX
            or _says_no_wait(properties)
            or (found is not topic and (found is None or header.queue_id >= _queue_count(found)))
        ):
            return None
        head = _head_of(connection.peer, header, int(parts.born), header.flag)
        stored = self._properties.of_send(properties.encode(), self._unique_keys.create)
        request = _request_of([_message_of(head, memoryview(frame)[header_end:], stored)], _FLUSH_AS_SET)
        return partial(self._add, request, _FLUSH_AS_SET, _Repeated(self, connection, frame, parts.opaque, ask_of))

    def sender_of(self, ask: Ask) -> "_Sender":
        """The caller of a single send."""
        ask.lasting_fields = self._always
        return _Sender(ask, SendHeader.of(ask))

    def ordinary_answer(self, opaque: bytes, response: bytes) -> bytes | None:
        """The bytes of the answer to a single send; None for one that has more fields. As those of `_Sender`."""
        (result,) = gateway_pb.AppendMessagesResponse.FromString(response).results
        if result.recall_handle:
            return None
        header = self._answer_form % (
            result.offset_msg_id.encode(),
            result.queue_id,
            result.queue_offset,
            _QUOTED(result.unique_key).encode(),
            opaque,
        )
        return b"%b%b%b" % ((len(header) + 4).to_bytes(4, "big"), len(header).to_bytes(4, "big"), header)

    def _learn(self, ask: Ask, header: SendHeader, topic: Topic) -> None:
        """The next sends with such a header are not decoded."""
        parts, self._to_learn = self._to_learn, None
        form = SHORT_FORM if ask.command.code in IN_LETTERS else LONG_FORM
        if parts is not None and not ask.command.is_oneway and parts.fields == form:
            self._repeated.learn(
                parts, ask.command, lambda: _Known(header._replace(properties="", born_millis=0), topic)
            )

    def _collect(self, ask: Ask, header: SendHeader, topic: Topic) -> None:
        """Keep a send until its turn of the loop ends: those of a turn are one append."""
        self._check_queue(ask, header, topic)
        flush = _flush_of(header)
        self._learn(ask, header, topic)
        self._add(self._request(ask, header, flush), flush, _Sender(ask, header))

    def _add(self, request: bytes, flush: int, sender: "_Sender | _Repeated") -> None:
        if len(request) > SMALL_REQUEST_BYTES_MAX:
            self.end_turn()
            try:
                self.send_part(request, sender)
            except StoreError as error:
                sender.fail(to_status(error))
            return
        self._collected.append(SmallRequest(request, flush, sender))
        self._collected_bytes += len(request)
        if len(self._collected) >= MESSAGE_COUNT_MAX or self._collected_bytes >= COLLECTED_BYTES_MAX:
            self.end_turn()

    def reply(self, ask: Ask) -> None:
        """One reply."""
        ask.lasting_fields = self._always
        header = SendHeader.of(ask)
        _check_topic(header)
        _check_lengths(header)
        ask.rights.appends(header.topic, 1)
        asker = parse_properties(header.properties.encode("utf-8", "replace")).get(REPLY_TO_CLIENT, "")
        if not asker:
            self._reply_later(ask, header, f"reply message properties[{REPLY_TO_CLIENT}] is null")
            return
        found = [each for each in self._shard.clients.named(asker) if each.producer_groups]
        if not found:
            self._reply_later(ask, header, f"push reply message fail, channel of <{asker}> not found.")
            return

        def answered(answer: Command | None) -> None:
            is_taken = answer is not None and answer.code == OK
            self._reply_later(ask, header, "" if is_taken else f"push reply message to {asker}fail.")

        now_millis = time.time_ns() // 1_000_000
        end = "" if header.properties.endswith("\x02") else "\x02"
        fields = {
            "producerGroup": header.producer_group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_queue_count),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_millis),
            "flag": str(header.flag),
            "properties": f"{header.properties}{end}{PUSH_REPLY_TIME}\x01{now_millis}\x02",
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "false",
            "bornHost": str(ask.connection.peer),
            "storeHost": str(ask.connection.local),
            "storeTimestamp": str(now_millis),
        }
        request = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, ask.command.body)
        found[-1].connection.ask(request, REPLY_SECONDS_MAX, answered)

    def recall(self, ask: Ask) -> None:
        """370: a message that waits for its time is taken back, by the handle that the answer to its send had."""
        ask.lasting_fields = {"MSG_REGION": self._properties.region}
        topic, handle = ask.text("topic"), ask.text("recallHandle")
        if self._shard.topics.find(topic) is None:
            ask.work(lambda: self._recall_later(ask, topic, handle))
        else:
            self._recall(ask, topic, handle)

    def _recall_later(self, ask: Ask, topic: str, handle: str) -> None:
        if self._shard.topics.find_now(topic) is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        self._recall(ask, topic, handle)

    def _recall(self, ask: Ask, topic: str, handle: str) -> None:
        def recalled(outcome: gateway_pb.RecallMessageResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                ask.refuse(_recall_refused(outcome))
            else:
                ask.answer({**ask.lasting_fields, "msgId": outcome.unique_key})

        try:
            self._shard.endings.recall(topic, handle, CALL_SECONDS, recalled)
        except StoreError as error:
            raise _recall_refused(error) from error

    def _reply_later(self, ask: Ask, header: SendHeader, problem: str) -> None:
        """Store a reply, and answer how the client that asked took it."""

        def store() -> None:
            topic = self._shard.topics.find_now(header.topic)
            if topic is None:
                is_own = header.topic == reply_topic_of(self._shard.cluster_name)
                topic = self._shard.create_topic(header.topic) if is_own else self._make(header)
            self._append(ask, header, topic, _Replier(ask, header, problem))

        ask.work(store)

    def _send_later(self, ask: Ask, header: SendHeader) -> None:
        """What has to be asked for first, in a thread."""
        topic = self._shard.topics.find_now(header.topic)
        if topic is None:
            topic = self._make(header)
        if header.topic.startswith(RETRY_PREFIX) and not header.is_batch:
            header, topic = self._not_too_often(header, topic)
        self._append(ask, header, topic, _Sender(ask, header))

    @staticmethod
    def _check_queue(ask: Ask, header: SendHeader, topic: Topic | None) -> None:
        if topic is not None and header.queue_id >= _queue_count(topic):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, topic {topic.topic} has {topic.write_queue_count} queues to "
                f"write and {topic.read_queue_count} to read. Producer: {ask.connection.peer}",
            )

    def _append(
        self,
        ask: Ask,
        header: SendHeader,
        topic: Topic | None,
        sender: "_Sender",
        encoded: tuple[list[bytes], int] | None = None,
        *,
        is_tried: bool = False,
    ) -> None:
        """Append a send; `encoded` is what `_encoded_parts` has given, if it was asked; `is_tried`: it has given None."""
        self._check_queue(ask, header, topic)
        flush = _flush_of(header)
        if not header.is_batch:
            self.send_part(self._request(ask, header, flush), sender)
            return
        parts, message_count = encoded or self._parts(ask, header, is_tried=is_tried)
        ask.rights.appends(header.topic, message_count)
        self.send_part(parts[0], _PartSender(self, sender, parts[1:]) if len(parts) > 1 else sender)

    def send_part(self, request: bytes, sender: "_Sender | _Repeated | _PartSender") -> None:
        """Append messages of a send; StoreError."""
        self._shard.forwarder.append_to(self._shard.broker_name, request, sender)

    def _request(self, ask: Ask, header: SendHeader, flush: int) -> bytes:
        """The bytes of an AppendMessagesRequest with a single message."""
        properties = header.properties.encode("utf-8", "replace")
        stored = self._properties.of_send(properties, self._unique_keys.create)
        head = _head_of(ask.connection.peer, header, header.born_millis, header.flag)
        return _request_of([_message_of(head, ask.command.body, stored)], flush)

    def _parts(self, ask: Ask, header: SendHeader, *, is_tried: bool) -> tuple[list[bytes], int]:
        """The bytes of the AppendMessagesRequests of a batch, one at least, and how many messages they have."""
        body = ask.command.body
        if header.topic.startswith(RETRY_PREFIX):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        if len(body) > REQUEST_BYTES_MAX:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {len(body)} bytes: at most {REQUEST_BYTES_MAX} are possible, send several",
            )
        encoded = None if is_tried else _encoded_parts(ask, header)
        if encoded is not None:
            return encoded
        peer, born_millis, flush = ask.connection.peer, header.born_millis, _flush_of(header)
        entries = decode_client_batch(body, BATCH_COUNT_MAX)
        heads = {flag: _head_of(peer, header, born_millis, flag) for flag in {entry.flag for entry in entries}}
        messages = [_message_of(heads[entry.flag], entry.body, entry.properties) for entry in entries]
        parts = [
            _request_of(messages[at : at + MESSAGE_COUNT_MAX], flush)
            for at in range(0, len(messages), MESSAGE_COUNT_MAX)
        ]
        return parts or [b""], len(messages)

    def _make(self, header: SendHeader) -> Topic | None:
        """The topic of a send, which was not there; None: the append makes it (a topic of the broker's own).

        Raises:
            RefusedError: messages make no topics here.
        """
        if is_system_topic(header.topic):
            return None
        count = self._inherited_queue_count(header)
        if count is None and header.topic.startswith(RETRY_PREFIX):
            count = OWNED_QUEUE_COUNT
        if count is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        return self._shard.create_topic(header.topic, count)

    def _inherited_queue_count(self, header: SendHeader) -> int | None:
        """Queues of a topic that a message makes; None: it makes none."""
        model = self._shard.topics.find(header.default_topic)
        if header.default_topic == AUTO_CREATE_TOPIC:
            if not self._shard.topics.new_topic_queue_count:
                return None
            count_max = DEFAULT_QUEUE_COUNT if model is None else model.write_queue_count
        elif model is None or not model.perm & PERM_INHERIT:
            return None
        else:
            count_max = model.write_queue_count
        return max(min(header.default_queue_count, count_max), 1)

    def _not_too_often(self, header: SendHeader, topic: Topic | None) -> tuple[SendHeader, Topic | None]:
        """A message that a consumer sends to its retry topic by itself: a dead letter after its attempts.

        So is one of a group that has locked queues: its client has tried as often as it should.
        """
        group = header.topic.removeprefix(RETRY_PREFIX)
        count_max = header.reconsume_times_max
        if count_max is None:
            question = consumer_pb.ListGroupsRequest(page_size=1, consumer_group=group)
            page = ask_groups(self._shard.shard, LIST_GROUPS, question, Deadline.after(CALL_SECONDS)).groups
            count_max = attempts_max_of(page[0] if page else default_settings(group)) - 1
        if header.reconsume_times <= count_max and not self._shard.has_locks(group):
            return header, topic
        name = dead_letter_topic_of(group)
        found = self._shard.topics.find_now(name) or self._shard.create_topic(name)
        end = "" if not header.properties or header.properties.endswith("\x02") else "\x02"
        properties = f"{header.properties}{end}{DELAY}\x010\x02"
        return header._replace(topic=name, queue_id=0, properties=properties), found


class _Sender:
    """The caller of an append: answers a send. An Answerable."""

    __slots__ = ("_ask", "_header")

    def __init__(self, ask: Ask, header: SendHeader) -> None:
        self._ask = ask
        self._header = header

    @property
    def client(self) -> Client:
        """See PendingAppend."""
        return self._ask.caller

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._end(self._fields(response))

    def answer_parts(self, first: message_pb2.AppendResult, message_ids: Sequence[str]) -> None:
        """Answer a batch of several appends, given the first receipt and the ids of all messages."""
        self._end(self._fields_of(first, message_ids))

    def _end(self, fields: Mapping[str, str]) -> None:
        self._ask.answer(fields)

    @staticmethod
    def answer_together(answers: "Sequence[tuple[_Sender, bytes]]") -> None:
        """Answer several sends, those of a connection in one write."""
        by_connection: dict[Connection, list[tuple[Command, Command]]] = {}
        for sender, response in answers:
            ask = sender._ask
            try:
                answered = ask.answered(sender._fields(response))
            except Exception:
                _log.exception("send.not_answered")
                fail_each([sender], broken())
            else:
                by_connection.setdefault(ask.connection, []).append(answered)
        for connection, of_connection in by_connection.items():
            try:
                connection.answer_all(of_connection)
            except Exception:  # those of other connections are answered all the same
                _log.exception("send.not_answered", count=len(of_connection))

    def _fields(self, response: bytes) -> Mapping[str, str]:
        results = gateway_pb.AppendMessagesResponse.FromString(response).results
        return self._fields_of(results[0], [result.offset_msg_id for result in results])

    def _fields_of(self, first: message_pb2.AppendResult, message_ids: Sequence[str]) -> Mapping[str, str]:
        fields = {
            **self._ask.lasting_fields,
            "msgId": ",".join(message_ids),
            "queueId": str(first.queue_id),
            "queueOffset": str(first.queue_offset),
        }
        if not self._header.is_batch:
            fields["transactionId"] = first.unique_key
            if first.recall_handle and not self._header.topic.startswith(RETRY_PREFIX):
                fields["recallHandle"] = first.recall_handle
        return fields

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        error = from_status(status)
        if isinstance(error, MAY_BE_STORED):
            # RocketMQ's 10 and 12 would say it, and need the place of the message, which is not known.
            self.refuse_for_good(
                f"{error.message}; the message may be stored: look for its unique key before you send it again"
            )
            return
        self._ask.refuse(error)

    def refuse_for_good(self, remark: str) -> None:
        """Answer with a code on which no client of Java sends again by itself: something may be stored already."""
        self._ask.refuse(RefusedError(ResponseCode.TRANSACTION_STATE_UNKNOWN, remark))

    def is_active(self) -> bool:
        """See Answerable."""
        return not self._ask.connection.is_closed

    def time_remaining(self) -> float | None:
        """See Answerable."""
        return None


class _Repeated:
    """The caller of an append of a send that was not decoded; as _Sender, which serves it where it has no ordinary answer.

    Args:
        sends: sends.
        connection, frame: where it came, and how.
        opaque: its number.
        ask_of: makes the request of the frame.
    """

    __slots__ = ("_ask_of", "_connection", "_frame", "_opaque", "_sends")

    def __init__(self, sends: Sends, connection: Connection, frame: bytes, opaque: bytes, ask_of: AskOf) -> None:
        self._sends = sends
        self._connection = connection
        self._frame = frame
        self._opaque = opaque
        self._ask_of = ask_of

    @property
    def _sender(self) -> _Sender:
        return self._sends.sender_of(self._ask_of(self._connection, self._frame))

    @property
    def client(self) -> Client:
        """See PendingAppend."""
        return self._sender.client

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self.answer_together([(self, response)])

    @staticmethod
    def answer_together(answers: "Sequence[tuple[_Repeated, bytes]]") -> None:
        """See _Sender."""
        by_connection: dict[Connection, tuple[list[bytes], list[int]]] = {}
        for repeated, response in answers:
            try:
                piece = repeated._sends.ordinary_answer(repeated._opaque, response)
                if piece is None:
                    repeated._sender.answer(response)
                    continue
            except Exception:
                _log.exception("send.not_answered")
                fail_each([repeated], broken())
                continue
            pieces, sizes = by_connection.setdefault(repeated._connection, ([], []))
            pieces.append(piece)
            sizes.append(len(repeated._frame))
        for connection, (pieces, sizes) in by_connection.items():
            try:
                connection.answer_encoded(len(sizes), sum(sizes), pieces)
            except Exception:  # those of other connections are answered all the same
                _log.exception("send.not_answered", count=len(sizes))

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        self._sender.fail(status)

    def is_active(self) -> bool:
        """See Answerable."""
        return not self._connection.is_closed

    def time_remaining(self) -> float | None:
        """See Answerable."""
        return None


class _PartSender:
    """The caller of an append of some of a batch's messages: sends the next ones, and has the batch answered after the last.

    The receipts of each part are read when they come: the thread of the answers has those of other callers as well.

    Args:
        sends: sends.
        sender: of the whole batch.
        parts: the requests that follow.
    """

    __slots__ = ("_first", "_message_ids", "_parts", "_sender", "_sends")

    def __init__(self, sends: Sends, sender: _Sender, parts: Sequence[bytes]) -> None:
        self._sends = sends
        self._sender = sender
        self._parts = list(reversed(parts))
        self._first: message_pb2.AppendResult | None = None
        self._message_ids: list[str] = []

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        results = gateway_pb.AppendMessagesResponse.FromString(response).results
        first = self._first = self._first or results[0]
        self._message_ids += [result.offset_msg_id for result in results]
        if not self._parts:
            self._sender.answer_parts(first, self._message_ids)
            return
        try:
            self._sends.send_part(self._parts.pop(), self)
        except StoreError as error:
            self.fail(to_status(error))

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        if self._first is None:
            self._sender.fail(status)
            return
        count = len(self._message_ids)
        self._sender.refuse_for_good(
            f"the first {count} messages of the batch are stored, and it is not known of the others: {status.message}"
        )

    def is_active(self) -> bool:
        """See Answerable; a batch that has begun is ended."""
        return self._first is not None or self._sender.is_active()

    def time_remaining(self) -> float | None:
        """See Answerable."""
        return self._sender.time_remaining()


class _Replier(_Sender):
    """The same for a reply.

    Args:
        problem: why the client that asked has not got it; empty: it has.
    """

    __slots__ = ("_problem",)
    answer_together = None  # type: ignore[assignment]  # an answer says, too, whether the asking client got the reply

    def __init__(self, ask: Ask, header: SendHeader, problem: str) -> None:
        super().__init__(ask, header)
        self._problem = problem

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable; the client that asked has its reply all the same."""
        _log.warning("reply.not_stored", topic=self._header.topic, error=status.message)
        self._end({"msgId": "0", "queueId": str(max(self._header.queue_id, 0)), "queueOffset": "0"})

    def _end(self, fields: Mapping[str, str]) -> None:
        self._ask.answer(fields, code=ResponseCode.SYSTEM_ERROR if self._problem else OK, remark=self._problem)


def _answer_form(lasting_fields: Mapping[str, str]) -> bytes:
    """The header of the answer to a single send, for `%`: the message's id, queue, offset and unique key, and the number."""
    names = ("msgId", "queueId", "queueOffset", "transactionId")
    fields = {**lasting_fields, **{name: f"\0{name}" for name in names}}
    form = encode_head(Command(OK, fields, opaque=_FORM_OPAQUE, flag=ANSWER), 0)[FRAME_HEAD_BYTES:].replace(b"%", b"%%")
    for name, value in zip(names, (b'"%b"', b'"%d"', b'"%d"', b"%b"), strict=True):
        form = form.replace(b'"\\u0000%b"' % name.encode(), value)
    return form.replace(b"%d" % _FORM_OPAQUE, b"%b")


def _recall_refused(error: StoreError) -> StoreError | RefusedError:
    """A recall that cannot be is an ILLEGAL_OPERATION, whatever is wrong with its handle; a failure that may pass is none."""
    if isinstance(error, (InvalidArgumentError, BrokerNotFoundError, ScheduledMessageNotFoundError)):
        return RefusedError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {error.message}")
    return error


def _check_topic(header: SendHeader) -> None:
    try:
        validate_topic(header.topic)
    except InvalidMessageError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, error.message) from error
    if header.topic in NOT_ALLOWED_SEND_TOPICS:
        raise RefusedError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")


def _check_lengths(header: SendHeader) -> None:
    """Before anything is made of them."""
    if len(header.properties) > PROPERTIES_SIZE_BYTES_MAX:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {len(header.properties)} characters: at most {PROPERTIES_SIZE_BYTES_MAX} bytes are possible",
        )


def _encoded_parts(ask: Ask, header: SendHeader) -> tuple[list[bytes], int] | None:
    """What `Sends._parts` gives, by the kernel; None for a batch that has to be decoded."""
    kernel, body = loading.load(BATCH_KERNEL), ask.command.body
    if kernel is None or len(body) < ENTRY_SIZE_BYTES_MIN:
        return None
    flag, flush = flag_of_first(body), _flush_of(header)
    head = _head_of(ask.connection.peer, header, header.born_millis, flag)
    count_max = min(MESSAGE_COUNT_MAX, len(body) // ENTRY_SIZE_BYTES_MIN)
    room = bytearray(kernel.room_bytes(len(body), len(head), count_max))
    end = bytes((FLUSH_TAG, flush)) if flush else b""
    parts: list[bytes] = []
    at = message_count = 0
    while at < len(body):
        at, count, size = kernel.encode(body, at, MESSAGE_COUNT_MAX, flag, head, room)
        message_count += count
        if not count or message_count > BATCH_COUNT_MAX:
            return None
        parts.append(b"".join((memoryview(room)[:size], end)))
    return parts, message_count


def _request_of(messages: Sequence[bytes], flush: int) -> bytes:
    """The bytes of an AppendMessagesRequest of the bytes of NewMessages."""
    pieces: list[bytes] = []
    for message in messages:
        pieces += (_MESSAGES_TAG, _varint(len(message)), message)
    if flush:
        pieces.append(bytes((FLUSH_TAG, flush)))
    return b"".join(pieces)


def _queue_count(topic: Topic) -> int:
    """Queues that a send may name."""
    return max(topic.write_queue_count, topic.read_queue_count)


def _says_no_wait(properties: str) -> bool:
    return "WAIT\x01false" in properties and _NO_WAIT.search(properties) is not None


def _flush_of(header: SendHeader) -> int:
    return message_pb2.FLUSH_MODE_ASYNC if _says_no_wait(header.properties) else _FLUSH_AS_SET


def _head_of(peer: Address, header: SendHeader, born_millis: int, flag: int) -> bytes:
    """The fields of a NewMessage before its body. What messages of a program have in common is kept as bytes."""
    common = _common_fields(
        *(header.topic, header.queue_id, _i32(flag), header.sys_flag & PRODUCER_MASK),
        *(min(max(header.reconsume_times, 0), (1 << 31) - 1), peer),
    )
    return common + _born_time(max(born_millis, 0))


def _message_of(head: bytes, body: bytes | memoryview, properties: bytes) -> bytes:
    """The bytes of a NewMessage; its fields come in any order."""
    return b"".join(
        (head, _BODY_TAG, _varint(len(body)), body, _WIRE_PROPERTIES_TAG, _varint(len(properties)), properties)
    )


@lru_cache(maxsize=4_096)
def _common_fields(topic: str, queue_id: int, flag: int, sys_flag: int, reconsume_times: int, peer: Address) -> bytes:
    made = message_pb2.NewMessage(
        topic=topic, flag=flag, born_host=str(Host(*peer)), sys_flag=sys_flag, reconsume_times=reconsume_times
    )
    if queue_id >= 0:
        made.queue_id = _i32(queue_id)
    return made.SerializeToString()


@lru_cache(maxsize=256)
def _born_time(millis: int) -> bytes:
    return message_pb2.NewMessage(born_time=millis_to_timestamp(millis)).SerializeToString()


@lru_cache(maxsize=4_096)
def _varint(number: int) -> bytes:
    """An unsigned number as protobuf writes lengths."""
    low = []
    while number >= 0x80:
        low.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*low, number))


def _i32(number: int) -> int:
    if not -(1 << 31) <= number < 1 << 31:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{number} is no number of 32 bits")
    return number


def consumer_send_msg_back(shard: DoorShard, ask: Ask) -> Answer:
    """36: a message that was pulled and not consumed comes again later, or becomes a dead letter."""
    group, offset = ask.text("group"), ask.number("offset")
    level, maximum = ask.number("delayLevel"), ask.number("maxReconsumeTimes", -2)
    deadline = Deadline.after(CALL_SECONDS)
    try:
        record = get_record(shard.shard, offset, deadline)
    except (RecordNotFoundError, OffsetOutOfRangeError) as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}") from error
    question = consumer_pb.SendBackMessagesRequest(
        consumer_group=group,
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offsets=[record.queue_offset],
        delay_level=_i32(level),
        # -1 of a client: none of its deliveries comes again.
        delivery_attempts_max=0 if maximum < -1 else min(max(maximum + 1, 1), (1 << 31) - 1),
        for_pullers=True,
    )
    (outcome,) = send_back(shard.source.now(), question, shard.broker_name, deadline).outcomes
    if outcome == gateway_pb.SEND_BACK_OUTCOME_REMOVED:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
    return Answer()
