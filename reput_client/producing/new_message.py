"""A message to be sent in a batch."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple


class NewMessage(NamedTuple):
    """What `Producer.send` takes of one message, as a value; a tuple, which is the quickest to make.

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
