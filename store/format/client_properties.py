r"""The property string of a send over RocketMQ's remoting protocol, and what a broker of 5.5.0 stores for it.

A single send (10, 310): the broker parses the string into a map, drops POP_CK, puts MSG_REGION and TRACE_ON, UNIQ_KEY where it
is missing, and CLUSTER, and writes the map. So malformed entries are lost, of two with one name the later value stays at the
earlier place, and the order is that of Java's HashMap with 128 buckets:

    bucket = (h ^ h >>> 16) & 127    h = hash of the name (`java_text.java_string_hash`), older names first in a bucket

A batch (320): the string of each message is stored as it is, and that of the request's header is not.

Sources: `AbstractSendMessageProcessor.buildMsgContext`, `SendMessageProcessor`, `MessageDecoder.messageProperties2String` of
Apache RocketMQ 5.5.0, and what it stored (tests/fixtures/remoting.sends.jsonl). Not followed: a bucket with nine names and
more, which Java makes a tree, in another order; it takes names that are chosen for it, and no reader uses the order.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from store.format.java_text import encode_java_utf8, java_string_hash
from store.format.properties import (
    CLUSTER,
    CRC32,
    MOVED_FROM,
    MSG_REGION,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    POP_CHECKPOINT,
    TRACE_ON,
    UNIQ_KEY,
    parse_properties,
)
from store.format.request_mark import REQUEST_MARK

# A store writes these itself; RocketMQ too drops a CRC that a client sends (`CommitLog.asyncPutMessage`). Light queues are
# named by a client where the store takes that, and by the store for a lite topic; their positions are the store's.
LEFT_OUT = frozenset((CRC32, REQUEST_MARK, MOVED_FROM, MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
# Programs use few sets of names; those of one string take at most 32 KiB.
ORDERS_KEPT_MAX = 256
_BUCKET_COUNT = 128
_NAMES_PER_BUCKET = 0.75  # with more names than that, a map doubles its buckets


class BrokerProperties(NamedTuple):
    """What a broker adds to the properties of each send.

    Attributes:
        cluster: its `brokerClusterName`.
        region: its `regionId`.
        trace_on: its `traceOn`.
    """

    cluster: str
    region: str = "DefaultRegion"
    trace_on: bool = True

    def of_send(self, properties: bytes, create_unique_key: Callable[[], str]) -> bytes:
        """The property string that a broker stores for a single send.

        Args:
            properties: as the client wrote them.
            create_unique_key: makes the UNIQ_KEY where the client gave none.
        """
        names = parse_properties(properties)
        names.pop(POP_CHECKPOINT, None)
        names[MSG_REGION] = self.region
        names[TRACE_ON] = "true" if self.trace_on else "false"
        if UNIQ_KEY not in names:
            names[UNIQ_KEY] = create_unique_key()
        names[CLUSTER] = self.cluster
        return encode_like_java(names)


def encode_like_java(properties: Mapping[str, str]) -> bytes:
    """The property string of a Java HashMap(128) into which the properties were put in this order; any names and values."""
    names = _java_order(tuple(properties))
    return encode_java_utf8("".join([f"{name}\x01{properties[name]}\x02" for name in names]))


def without_left_out(properties: bytes, *, keep: str = "") -> bytes:
    """The string without the properties that a store writes itself, but for one of them; the others as they are."""
    names = [name.encode() for name in LEFT_OUT if name != keep]
    return b"\x02".join(entry for entry in properties.split(b"\x02") if entry.partition(b"\x01")[0] not in names)


@lru_cache(maxsize=ORDERS_KEPT_MAX)
def _java_order(names: tuple[str, ...]) -> tuple[str, ...]:
    bucket_count = _BUCKET_COUNT
    while len(names) > bucket_count * _NAMES_PER_BUCKET:
        bucket_count *= 2

    def bucket_of(name: str) -> int:
        value = java_string_hash(name) & 0xFFFFFFFF
        return (value ^ value >> 16) & bucket_count - 1

    return tuple(sorted(names, key=bucket_of))
