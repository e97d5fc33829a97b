"""The text of a receipt handle: what a consumer gives back to acknowledge one delivery.

    <base64url of the shard's name> . <base64url of the payload> . <base64url of the signature>

    payload: text, parts divided by a blank (names hold none)
        group  topic  queue id  queue offset  delivery number  invisible until (ms since 1970)  serial of the delivery

A handle of an older version has no serial, which reads as 0.

The signature is made and checked by the shard (consumer_svc/delivering/receipt_handle.py). A gateway reads the rest: whom to
ask, and whether the handle is of the topic that its caller names.

RocketMQ's remoting clients make a handle by themselves, out of what a broker answers to a pop: ExtraInfo. The consumer service
is given the message's topic, a blank, and that text. It has blanks, and a signed handle has none.
"""

import base64
from typing import NamedTuple

from store.format.topic import RETRY_PREFIX

# A group and a topic of 255 bytes each, a shard's name, and four numbers.
HANDLE_LENGTH_MAX = 2_048


class HandleParts(NamedTuple):
    """A receipt handle as it is spelled; nothing says that a shard has made it."""

    broker_name: str
    payload: bytes
    signature: bytes


class HandlePayload(NamedTuple):
    """One delivery of a message to a group."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    delivery_number: int
    invisible_until_millis: int
    serial: int = 0


class ExtraInfo(NamedTuple):
    """One delivery as RocketMQ's remoting clients name it: the property POP_CK of a message (`ExtraInfoUtil`).

    Attributes:
        start_offset: the first position that was handed out of the queue.
        pop_millis: when the messages were handed out (ms since 1970); or when their invisible time was changed.
        invisible_millis: how long they stay hidden from then on.
        mark: `reviveQid`, which clients give back as it came; here the consumer service signs with it.
        topic_kind: see `topic_kind_of`.
        broker_name: the shard's name.
        queue_id: queue inside the message's topic.
        queue_offset: the message's position.
    """

    start_offset: int
    pop_millis: int
    invisible_millis: int
    mark: int
    topic_kind: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def text(self) -> str:
        """The parts, divided by blanks."""
        return " ".join(map(str, self))


def topic_kind_of(topic: str) -> str:
    """0: a topic of producers; else a retry topic, 2: with a `+` in its name (`enableRetryTopicV2`), 1: without."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


def parse_extra_info(text: str) -> ExtraInfo:
    """The parts of a text; ValueError: it has others."""
    if len(text) > HANDLE_LENGTH_MAX:
        raise ValueError(f"it has {len(text)} characters")
    try:
        start, popped, invisible, mark, kind, broker_name, queue_id, queue_offset = text.split(" ")
        numbers = (start, popped, invisible, mark, queue_id, queue_offset)
        start_offset, pop_millis, invisible_millis, mark_number, queue, offset = map(_number, numbers)
    except ValueError as error:
        raise ValueError("it has other parts") from error
    if kind not in ("0", "1", "2") or not broker_name:
        raise ValueError("it has other parts")
    return ExtraInfo(start_offset, pop_millis, invisible_millis, mark_number, kind, broker_name, queue, offset)


def encode_check_point(topic: str, info: ExtraInfo) -> str:
    """The handle of a delivery that a client names by its extra info, for the consumer service."""
    return f"{topic} {info.text()}"


def decode_check_point(text: str) -> tuple[str, ExtraInfo]:
    """The topic and the extra info of such a handle; ValueError: it is none."""
    topic, blank, rest = text.partition(" ")
    if not topic or not blank:
        raise ValueError("it has other parts")
    info = parse_extra_info(rest)
    if info.topic_kind != topic_kind_of(topic):
        raise ValueError("it is of another topic")
    return topic, info


def encode_part(data: bytes) -> str:
    """Base64url without the padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def split_handle(text: str) -> HandleParts:
    """The parts of a handle.

    Raises:
        ValueError: it has others.
    """
    if len(text) > HANDLE_LENGTH_MAX:
        raise ValueError(f"it has {len(text)} characters")
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError("it has other parts")
    try:
        broker_name, payload, signature = map(_decode_part, parts)
        return HandleParts(broker_name.decode(), payload, signature)
    except ValueError as error:
        raise ValueError("its parts are no base64url") from error


def encode_payload(payload: HandlePayload) -> bytes:
    """The bytes of a payload."""
    return " ".join(map(str, payload if payload.serial else payload[:-1])).encode()


def decode_payload(payload: bytes) -> HandlePayload:
    """The delivery that a payload spells; ValueError: it has other parts."""
    try:
        group, topic, *numbers = payload.decode().split(" ")
        queue_id, queue_offset, delivery_number, until, *serials = map(int, numbers)
        (serial,) = serials or (0,)
    except ValueError as error:
        raise ValueError("it has other parts") from error
    return HandlePayload(group, topic, queue_id, queue_offset, delivery_number, until, serial)


def _number(text: str) -> int:
    """A number of a client, from 0 on and of 64 bits."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) >= 1 << 63:
        raise ValueError(f"{text[:32]!r} is no number")
    return int(text)


def _decode_part(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
