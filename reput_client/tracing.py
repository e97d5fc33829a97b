r"""Traces of a producer or consumer with `trace=True`, in the format of RocketMQ's clients, so that its tools read them too.

    Pub | time | region | group | topic | unique key | tags | keys | store host | body bytes | cost | type | offset id | true
    SubBefore | time | region | group | request id | unique key | retry count | keys
    SubAfter | request id | unique key | cost | success | keys | context code | time | group
    EndTransaction | time | region | group | topic | unique key | tags | keys | store host | 2 | unique key | verdict |
        from check

Fields end with \x01, an entry with \x02; times and costs are milliseconds; a missing text is the word `null`.
Source: `TraceDataEncoder` of RocketMQ 5.5.0. A producer tells of messages that are stored: without a receipt there is no unique
key, as in RocketMQ's client. The half message of a transaction is a send of the type 1; its id is its unique key.

Entries go to the trace topic as messages, whose keys are the unique keys and business keys of the entries. One such message is
under way at a time, and entries that come meanwhile share the next one. They wait for nothing and fail nothing: what there is
no room for, and what cannot be sent, is dropped and counted.
"""

import ipaddress
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import grpc

from reput_client.channel import open_async_channel, open_channel
from reput_client.commands import TIMER_DELAY_MS
from reput_client.errors import BatchDeliveryError, ReputClientError
from reput_client.producing.futures import OnBatch, OnDelivery, OnOutcome, Receipts
from reput_client.producing.loops import LoopSender
from reput_client.producing.messages import MessageEncoder, NewMessage
from reput_client.producing.settings import ProducerSettings
from reput_client.producing.threads import ThreadSender
from reput_client.producing.unique_key import UniqueKeyGenerator
from reput_client.receipt import SendReceipt
from reput_client.security import ClientSecurity

REGION = "DefaultRegion"
# As in RocketMQ's AsyncTraceDispatcher: entries that wait, entries of a message, bytes of a message.
PENDING_COUNT_MAX = 1024
ENTRY_COUNT_MAX = 100
BODY_BYTES_MAX = 118_000
# All properties of a message have 32 KiB.
KEYS_BYTES_MAX = 16 << 10
CLOSE_SECONDS_MAX = 3.0
_OFFSET_BYTES = 8

_log = logging.getLogger("reput_client")


class ConsumeReturn(IntEnum):
    """How a handler ended (RocketMQ's `ConsumeReturnType`)."""

    SUCCESS = 0
    EXCEPTION = 2
    FAILED = 4


# Sends a message, given as its bytes, without waiting; then calls back.
Post = Callable[[bytes, OnDelivery], object]


def writer_settings() -> ProducerSettings:
    """The settings of what sends the traces: it never waits for room, and gives up soon."""
    return ProducerSettings(
        block_seconds_max=0, buffer_bytes_max=2 << 20, delivery_seconds_max=30.0, close_seconds_max=CLOSE_SECONDS_MAX
    )


class TraceWriter:
    """Sends entries; for any number of threads.

    Args:
        post: sends a message.
        topic: the trace topic.
        group: of the producer or consumer.
        millis: the time, milliseconds since 1970.

    Attributes:
        topic: see above. Of its own messages nothing may be told: each entry would make the next.
        dropped_count: entries that were not sent, or of which that is not known.
    """

    def __init__(
        self, post: Post, topic: str, group: str, millis: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._post = post
        self.topic = topic
        self._group = group
        self.millis = millis
        self._encoder = MessageEncoder(UniqueKeyGenerator().create_many)
        self._lock = threading.Lock()
        self._pending: deque[tuple[bytes, list[str]]] = deque()
        self._is_busy = False
        self._is_closing = False
        self.dropped_count = 0

    # -- what is told

    def watch(
        self, topic: str, tags: str, keys: Iterable[str], body_bytes: int, message_type: int, then: OnDelivery | None
    ) -> OnDelivery:
        """Called with the outcome of a send that begins now, it tells of it, and calls `then`."""
        began = self.millis()
        known = list(keys)

        def delivered(receipt: SendReceipt | None, error: ReputClientError | None) -> None:
            if receipt is not None:
                self.sent(topic, tags, known, body_bytes, message_type, began, self.millis() - began, receipt)
            if then is not None:
                then(receipt, error)

        return delivered

    def watch_all(self, messages: Sequence[NewMessage]) -> OnBatch:
        """Called with the outcome of a batch that is sent now, it tells of each message if all are stored, and calls on."""
        began = self.millis()
        # Now: until the outcome comes, the program may change or release what it gave.
        listed = list(map(_about, messages))

        def settled(then: OnOutcome, receipts: Receipts | None, error: BatchDeliveryError | None) -> None:
            if receipts is not None:
                self._sent_all(listed, receipts, began)
            then(receipts, error)

        return settled

    def sent_all(self, messages: Sequence[NewMessage], receipts: Sequence[SendReceipt], began: int) -> None:
        """Messages of one request are stored; RocketMQ's client shares the time among them, too."""
        self._sent_all(list(map(_about, messages)), receipts, began)

    def _sent_all(self, listed: Sequence["_About"], receipts: Sequence[SendReceipt], began: int) -> None:
        cost = (self.millis() - began) // max(1, len(listed))
        for each, receipt in zip(listed, receipts, strict=True):
            self.sent(*each, began, cost, receipt)

    def sent(
        self,
        topic: str,
        tags: str,
        keys: Iterable[str],
        body_bytes: int,
        message_type: int,
        began: int,
        cost_millis: int,
        receipt: SendReceipt,
    ) -> None:
        """A producer's message is stored."""
        if topic == self.topic:
            return
        known = list(keys)
        head = ("Pub", began, REGION, self._group, topic, receipt.unique_key, tags, " ".join(known))
        host = store_host_of(receipt.offset_msg_id)
        self._add(
            (*head, host, body_bytes, max(0, cost_millis), message_type, receipt.offset_msg_id, "true"),
            [receipt.unique_key, *known],
        )

    def verdict(
        self,
        topic: str,
        unique_key: str,
        verdict: str,
        *,
        tags: str = "",
        keys: Iterable[str] = (),
        store_host: str = "",
        is_from_check: bool = False,
    ) -> None:
        """A producer has ended a transaction, or answers a question about it.

        Args:
            topic, unique_key, tags, keys: of its message.
            verdict: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
            store_host: of its half message, HOST:PORT; empty: not known.
            is_from_check: a gateway had asked.
        """
        if topic == self.topic:
            return
        known = list(keys)
        head = (
            "EndTransaction",
            self.millis(),
            REGION,
            self._group,
            topic,
            unique_key,
            tags,
            " ".join(known),
            store_host,
        )
        self._add((*head, COMMIT, unique_key, verdict, str(is_from_check).lower()), [unique_key, *known])

    def began(self, unique_key: str, keys: Iterable[str], retry_count: int) -> tuple[str, int]:
        """A consumer's program gets a message; what `ended` needs: request id, and the time."""
        request_id, began = uuid.uuid4().hex.upper(), self.millis()
        known = list(keys)
        entry = ("SubBefore", began, REGION, self._group, request_id, unique_key, retry_count, " ".join(known))
        self._add(entry, [unique_key, *known])
        return request_id, began

    def ended(
        self, begin: tuple[str, int], unique_key: str, keys: Iterable[str], code: ConsumeReturn, shared_by: int = 1
    ) -> None:
        """A consumer's program has said how it ended with a message.

        `shared_by`: messages that it got at once; each is told a part of the time, as in RocketMQ's client.
        """
        (request_id, began), now = begin, self.millis()
        known = list(keys)
        success = "true" if code is ConsumeReturn.SUCCESS else "false"
        head = ("SubAfter", request_id, unique_key, max(0, now - began) // shared_by, success, " ".join(known))
        self._add((*head, int(code), now, self._group), [unique_key, *known])

    # -- the messages

    def close(self) -> None:
        """Send what waits, without waiting for it; later entries are dropped."""
        with self._lock:
            self._is_closing = True
        while self._send():
            pass
        if self.dropped_count:
            _log.warning("%d entries of traces were not sent", self.dropped_count)

    def _add(self, fields: Iterable[object], keys: list[str]) -> None:
        entry = b"\x01".join(map(_field, fields)) + b"\x02"
        with self._lock:
            if self._is_closing or len(self._pending) >= PENDING_COUNT_MAX or len(entry) > BODY_BYTES_MAX:
                self.dropped_count += 1
                return
            self._pending.append((entry, keys))
            if self._is_busy:
                return
            self._is_busy = True
        self._send()

    def _send(self) -> bool:
        """Send the next message; whether there was one."""
        with self._lock:
            entries, keys = self._take()
            self._is_busy = bool(entries)
        if not entries:
            return False
        try:
            self._post(self._wire(entries, keys), lambda _, error: self._answered(len(entries), error))
        except Exception as error:  # also that no thread can be started: what is told of goes on
            self._lost(len(entries), error)
            with self._lock:
                self._is_busy = False
        return True

    def _take(self) -> tuple[list[bytes], list[str]]:
        """The entries of the next message, and its keys. The lock is held."""
        entries: list[bytes] = []
        found: dict[str, None] = {}
        body_bytes = keys_bytes = 0
        while self._pending and len(entries) < ENTRY_COUNT_MAX:
            entry, keys = self._pending[0]
            new = [key for key in dict.fromkeys(keys) if key and key not in found]
            more = sum(len(key.encode()) + 1 for key in new)
            if more > KEYS_BYTES_MAX:  # the unique key alone is what it is found by
                new, more = new[:1], min(len(new[0].encode()) + 1, KEYS_BYTES_MAX)
            if entries and (body_bytes + len(entry) > BODY_BYTES_MAX or keys_bytes + more > KEYS_BYTES_MAX):
                break
            self._pending.popleft()
            entries.append(entry)
            found |= dict.fromkeys(new)
            body_bytes += len(entry)
            keys_bytes += more
        return entries, list(found)

    def _wire(self, entries: list[bytes], keys: list[str]) -> bytes:
        return self._encoder.encode(NewMessage(self.topic, b"".join(entries), keys))

    def _answered(self, entry_count: int, error: ReputClientError | None) -> None:
        if error is not None:
            self._lost(entry_count, error)
        self._send()

    def _lost(self, entry_count: int, error: Exception) -> None:
        with self._lock:
            is_first = not self.dropped_count
            self.dropped_count += entry_count
        if is_first:
            _log.warning("entries of traces are dropped: they cannot be sent to topic %s: %s", self.topic, error)


def _field(value: object) -> bytes:
    text = str(value) or "null"
    return text.replace("\x01", " ").replace("\x02", " ").encode("utf-8", "replace")


def store_host_of(offset_msg_id: str) -> str:
    """The broker's HOST:PORT inside an offsetMsgId; empty when it is none."""
    try:
        place = bytes.fromhex(offset_msg_id)[:-_OFFSET_BYTES]
        address, port = ipaddress.ip_address(place[:-4]), int.from_bytes(place[-4:])
    except ValueError:
        return ""
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


# RocketMQ's `MessageType`; its client says COMMIT of each verdict.
NORMAL, HALF, COMMIT, DELAY = range(4)
TRAN_MSG = "TRAN_MSG"


def message_type_of(properties: Mapping[str, str] | None, delivery_time: object, delay_level: int) -> int:
    """The type of a message in a trace."""
    if properties and properties.get(TRAN_MSG) == "true":
        return HALF
    is_late = delivery_time is not None or delay_level or TIMER_DELAY_MS in (properties or {})
    return DELAY if is_late else NORMAL


# Topic, tags, keys, bytes of the body, type.
_About = tuple[str, str, list[str], int, int]


def _about(message: NewMessage) -> _About:
    """What is told of a message that is sent."""
    kind = message_type_of(message.properties, message.delivery_time, message.delay_level)
    return message.topic, message.tags, list(message.keys), len(message.body), kind


def read_again(keys: Iterable[str]) -> Iterable[str]:
    """Keys that can be read twice: for the message, and for what is told of it."""
    return list(keys) if isinstance(keys, Iterator) else keys


def all_read_again(messages: Iterable[Any]) -> list[Any]:
    """Messages whose keys can be read twice; what is no `NewMessage` as it is."""
    return [each._replace(keys=read_again(each.keys)) if isinstance(each, NewMessage) else each for each in messages]


@dataclass(frozen=True, slots=True)
class ThreadTracing:
    """What tells for a producer or consumer on threads: entries, and what sends them."""

    writer: TraceWriter
    sender: ThreadSender

    @classmethod
    def of(
        cls,
        target: str,
        channel: grpc.Channel | None,
        security: ClientSecurity | None,
        trace_topic: str,
        group: str,
    ) -> "ThreadTracing":
        """Over a channel that is given, or over one of its own."""
        sender = ThreadSender(
            channel or open_channel(target, security), writer_settings(), owns_channel=channel is None
        )
        return cls(TraceWriter(partial(sender.send, urgent=False), trace_topic, group), sender)

    def close(self) -> None:
        """Send what waits, for CLOSE_SECONDS_MAX."""
        self.writer.close()
        self.sender.close(None)


@dataclass(frozen=True, slots=True)
class LoopTracing:
    """See `ThreadTracing`; for one event loop, which must run when it is made."""

    writer: TraceWriter
    sender: LoopSender

    @classmethod
    def of(
        cls,
        target: str,
        channel: grpc.aio.Channel | None,
        security: ClientSecurity | None,
        trace_topic: str,
        group: str,
    ) -> "LoopTracing":
        """See `ThreadTracing.of`."""
        opened = channel or open_async_channel(target, security)
        sender = LoopSender(opened, writer_settings(), owns_channel=channel is None)
        return cls(TraceWriter(sender.post, trace_topic, group), sender)

    async def close(self) -> None:
        """See `ThreadTracing.close`."""
        self.writer.close()
        await self.sender.close(None)
