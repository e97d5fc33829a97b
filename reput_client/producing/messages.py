"""`NewMessage`, and new messages as the bytes of a request.

Ordinary messages are encoded by hand, in half the time that a protobuf object for each takes:

    0A size │ 0A n topic │ 10 queue_id │ 1A n body │ 22 n tags │ 2A n key ... │ 32 n (0A n name 12 n value) ... │
            │ 38 flag │ 42 n unique_key                    numbers and sizes n are varints, absent fields are left out

Fields are in the order in which protobuf writes them. A message is ordinary if its arguments are plain `str` and
`bytes`, not subclasses, and not empty where they must not be. All other messages, also invalid ones, go through
`encoding.to_message`, the plain twin under the same tests, which raises the errors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from reput_client.encoding import MESSAGE_BYTES_MAX, as_field, encode_varint, to_message, with_place


class NewMessage(NamedTuple):
    """A message to send: the arguments of `Producer.send` as a value; a tuple, which is the quickest to make.

    Attributes:
        topic: the topic.
        body: 1 byte to 4 MiB.
        keys: business keys to find it by; without spaces.
        tags: RocketMQ's TAGS: one tag.
        properties: the application's own.
        queue_id: the queue; None = the store takes them in turn.
        unique_key: its id; None = one is made. Two messages with one id are stored once.
        born_time: when it was made, with a time zone; None = the time of storing.
        flag: the application's own 32 bits.
        delivery_time: consumers get it at this time, with a time zone; None = at once.
        delay_level: consumers get it after the delay of this level of RocketMQ (1 is 1 s, 18 is 2 h); 0 = at once.
        priority: 0 or more, for a topic of the type PRIORITY: consumers get higher ones first. It is its queue number, or
            the last queue. None = it has none.
        lite_topic: of a topic of the type LITE: letters, digits, _ and -, at most 64. Messages of one lite topic keep their
            order, and clients that subscribe to it get them. None = it has none.
    """

    topic: str
    body: bytes | bytearray | memoryview
    keys: Iterable[str] = ()
    tags: str = ""
    properties: Mapping[str, str] | None = None
    queue_id: int | None = None
    unique_key: str | None = None
    born_time: datetime | None = None
    flag: int = 0
    delivery_time: datetime | None = None
    delay_level: int = 0
    priority: int | None = None
    lite_topic: str | None = None


# Producers send to a few topics with a few tags; one that does not pays for a look-up more.
CACHE_COUNT = 512
CACHED_SIZE_COUNT = 4096
# Longer ones would make the caches hold more than a megabyte.
CACHED_TEXT_SIZE_MAX = 255
INT32_MAX = (1 << 31) - 1

_varint = lru_cache(CACHED_SIZE_COUNT)(encode_varint)


class MessageEncoder:
    """Makes the bytes of new messages, each with a unique key.

    Args:
        create_unique_keys: makes so many unique keys, in ASCII.
    """

    def __init__(self, create_unique_keys: Callable[[int], Sequence[bytes]]) -> None:
        self._create_unique_keys = create_unique_keys

    def encode(self, message: NewMessage) -> bytes:
        """One message as it stands in a request; errors as `encode_all`."""
        return self.encode_all((message,))[0]

    def encode_all(self, messages: Iterable[NewMessage]) -> list[bytes]:
        """Messages as they stand in a request.

        Raises:
            InvalidMessageError: one is too large for any request.
            TypeError, ValueError: as `to_message`, for one of them.
        """
        listed = messages if type(messages) is list or type(messages) is tuple else list(messages)
        wires: list[bytes] = []
        # Those of the message before: most messages of a batch share them.
        known_topic = known_queue = known_tags = _UNKNOWN
        front = tags_field = b""
        for message, made_key in zip(listed, self._create_unique_keys(len(listed)), strict=True):
            if not isinstance(message, NewMessage):
                raise TypeError(
                    f"messages are NewMessage, not {type(message).__name__}: give [NewMessage(topic, body)]"
                )
            topic, body, keys, tags, properties, queue_id, own_key, born, flag, due, level, priority, lite = message
            if priority is not None or lite is not None:
                properties = with_place(properties, priority, lite)
            wire = None
            if (
                type(body) is bytes
                and body
                and (type(keys) is tuple or type(keys) is list)
                and born is None
                and due is None
                and not level
            ):
                try:
                    if topic is not known_topic or queue_id is not known_queue:
                        front = _checked_front(topic, queue_id)
                        known_topic, known_queue = topic, queue_id
                    if tags is not known_tags:
                        tags_field = _checked_tags_field(tags)
                        known_tags = tags
                    tail = tags_field
                    for key in keys:
                        text = str.encode(key)
                        tail = b"%b*%b%b" % (tail, _varint(len(text)), text)
                    if properties:
                        tail += _properties_fields(properties)
                    if flag:
                        tail += _flag_field(flag)
                    id_ = made_key if own_key is None else str.encode(own_key)
                    body_size, id_size = _varint(len(body)), _varint(len(id_))
                    size = len(front) + len(body_size) + len(body) + len(tail) + 1 + len(id_size) + len(id_)
                    if size <= MESSAGE_BYTES_MAX:
                        wire = b"".join((b"\x0a", _varint(size), front, body_size, body, tail, b"B", id_size, id_))
                except (TypeError, ValueError):  # not ordinary after all
                    wire = None
            if wire is None:
                unique_key = made_key.decode() if own_key is None else own_key
                wire = as_field(
                    to_message(topic, body, keys, tags, properties, queue_id, unique_key, born, flag, due, level)
                )
            wires.append(wire)
        return wires


# Equal to no argument of a message.
_UNKNOWN: Any = object()


def _checked_front(topic: str, queue_id: int | None) -> bytes:
    if type(topic) is not str or not 0 < len(topic) <= CACHED_TEXT_SIZE_MAX:
        raise ValueError(topic)
    if queue_id is not None and (type(queue_id) is not int or not 0 <= queue_id <= INT32_MAX):
        raise ValueError(queue_id)
    return _front(topic, queue_id)


def _checked_tags_field(tags: str) -> bytes:
    if type(tags) is not str or len(tags) > CACHED_TEXT_SIZE_MAX:
        raise ValueError(tags)
    return _tags_field(tags) if tags else b""


def _flag_field(flag: int) -> bytes:
    if type(flag) is not int or not 0 <= flag <= INT32_MAX:
        raise ValueError(flag)
    return b"8" + _varint(flag)


def _properties_fields(properties: Mapping[str, str]) -> bytes:
    if type(properties) is not dict:
        raise TypeError(properties)
    fields = b""
    for name, value in properties.items():
        entry = b"\x0a%b%b\x12%b%b" % (*_sized(str.encode(name)), *_sized(str.encode(value)))
        fields += b"2%b%b" % _sized(entry)
    return fields


def _sized(text: bytes) -> tuple[bytes, bytes]:
    return _varint(len(text)), text


@lru_cache(CACHE_COUNT)
def _front(topic: str, queue_id: int | None) -> bytes:
    """The fields before the size of the body."""
    text = topic.encode()
    queue = b"" if queue_id is None else b"\x10" + encode_varint(queue_id)
    return b"\x0a%b%b%b\x1a" % (encode_varint(len(text)), text, queue)


@lru_cache(CACHE_COUNT)
def _tags_field(tags: str) -> bytes:
    text = tags.encode()
    return b'"%b%b' % (encode_varint(len(text)), text)
