r"""The property string of a message.

    name \x01 value \x02 name \x01 value \x02 ...

The writer ends each property with \x02; older writers omit the last one, and the reader accepts that. The reader
follows RocketMQ (`MessageDecoder.string2messageProperties`, 5.3.3) in these details:

- the name ends at the first \x01 of the entry, so a value may contain \x01;
- an entry without \x01, name or value is ignored;
- of two properties with one name the later wins.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from store.errors import InvalidMessageError
from store.format.java_text import decode_java_utf8, encode_java_utf8
from store.format.topic import can_be_light_queue, split_lite_queue

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
PROPERTIES_SIZE_BYTES_MAX = 32767  # the length is a signed 16-bit number

# The names of `MessageConst`.
KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
CRC32 = "__CRC32#"
SHARDING_KEY = "__SHARDINGKEY"  # the message group
PRIORITY = "_SYS_MSG_PRIORITY_"  # see message_type.py
LITE_TOPIC = "__LITE_TOPIC"  # its message has a unit in the light queue of this lite topic of its topic
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
FIRST_POP_TIME = "1ST_POP_TIME"
# When a message is due, as its producer says it; TIMER_OUT_MS is what the store makes of it.
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"  # the unique key of a message that is recalled
# Transactions.
TRAN_MSG = "TRAN_MSG"  # "true" in a half message
PRODUCER_GROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
# A message with one of these may become a record of a system topic, and is delivered later, or never.
WAITING_PROPERTIES = frozenset((DELAY, TRAN_MSG, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS))
# Requests and replies.
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
MSG_TYPE = "MSG_TYPE"  # REPLY_TYPE in a reply
REPLY_TYPE = "reply"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"  # in a reply on its way to the client that asked (ms since 1970)

# What a broker puts into each message that it takes.
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
POP_CHECKPOINT = "POP_CK"  # a broker's own record of what a pop handed out; it drops that of a client
# How many messages a body with the bit INNER_BATCH holds.
INNER_NUM = "INNER_NUM"

# Further queues that a broker with `enableMultiDispatch` gives a unit of the record, split by commas.
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"  # the places of those units
POSITION_DIGITS_MAX = 18  # of a position in a queue: it fits 64 bits

# Ours: queue id, queue offset and topic of the record that a retry or a dead letter is a copy of.
MOVED_FROM = "__REPUT_MOVED_FROM__"

# Names that the store or a broker sets; a user's property of such a name would be taken for theirs.
# CLUSTER is none of them: the gateway sets it in requests that want a reply.
OWNED_PROPERTIES = frozenset(
    [
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "__CRC32#",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        MSG_REGION,
        TRACE_ON,
        "EXTEND_UNIQ_INFO",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "DUP_INFO",
        POP_CHECKPOINT,
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        INNER_NUM,
        "INNER_BASE",
        MULTI_DISPATCH,
        MULTI_QUEUE_OFFSET,
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__BORNHOST",
        "BORN_TIMESTAMP",
    ]
)
# Names by which the store says how a message waits: it sets them itself, after it has read what the message asks for.
WAITING_STATE_PROPERTIES = frozenset(
    [
        "TRAN_PREPARED_QUEUE_OFFSET",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "TRANSFER_FLAG",
        "TIMER_DELAY_LEVEL",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_ROLL_LABEL",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_CHECKPOINT",
    ]
)

# What a broker adds when it stores a message again, for another topic or later: `ScheduleMessageService.messageTimeUp`,
# `TimerMessageStore.convertMessage`, `TransactionalMessageBridge.renewHalfMessageInner`, `EndTransactionProcessor`,
# `PopReviveService.reviveRetry`, `AbstractSendMessageProcessor.consumerSendMsgBack` (5.3.3). Their copies have all
# properties of the message.
_STORED_AGAIN = frozenset(
    (
        *(FIRST_POP_TIME, RETRY_TOPIC, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC),
        *(TRANSACTION_CHECK_TIMES, TRAN_PREPARED_QUEUE_OFFSET, TIMER_ROLL_TIMES),
    )
)


def is_stored_again(data: bytes | bytearray | memoryview, topic: str) -> bool:
    """Whether a message of a topic with this property string may be a broker's copy of another record.

    A message that waits has REAL_TOPIC from the first; in that topic itself it is a copy.
    """
    properties = parse_properties(data)
    return properties.get(REAL_TOPIC) == topic or not _STORED_AGAIN.isdisjoint(properties)


def parse_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties in order of first appearance; never fails, bad UTF-8 reads as U+FFFD."""
    properties: dict[str, str] = {}
    for entry in decode_java_utf8(data).split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The stored bytes, each property closed by its separator.

    Raises:
        InvalidMessageError: field `properties`: a name or value holds a separator (a reader would split it there),
            a name or value is empty (a reader would ignore it), or all together take over 32,767 bytes.
    """
    parts: list[str] = []
    for name, value in properties.items():
        pair = name + value
        if NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
            raise InvalidMessageError(
                f"Property {name!r} contains U+0001 or U+0002, which separate properties: leave them out.",
                field="properties",
                property=name,
            )
        if not name or not value:
            raise InvalidMessageError(
                f"Property {name!r} has an empty name or value and would be lost: leave it out.",
                field="properties",
                property=name,
            )
        parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    data = encode_java_utf8("".join(parts))
    if len(data) > PROPERTIES_SIZE_BYTES_MAX:
        raise InvalidMessageError(
            f"Properties take {len(data)} bytes, at most {PROPERTIES_SIZE_BYTES_MAX} can be stored.",
            field="properties",
            sizeBytes=len(data),
            sizeBytesMax=PROPERTIES_SIZE_BYTES_MAX,
        )
    return data


def split_keys(text: str) -> tuple[str, ...]:
    """The keys in a KEYS value: split at each space (no other white space); without empty ones, with repeats."""
    return tuple([key for key in text.split(KEY_SEPARATOR) if key])


class LightPlace(NamedTuple):
    """A light queue, and the position (in messages) that a record has there."""

    queue: str
    queue_offset: int


# `INNER_MULTI_QUEUE_OFFSET` with its separators, and what each position in it takes at most.
LIGHT_POSITIONS_BYTES_MIN = len(MULTI_QUEUE_OFFSET) + 2
LIGHT_POSITION_BYTES_MAX = POSITION_DIGITS_MAX + 2


def light_queue_names(names: str, topic: str) -> tuple[str, ...]:
    """The light queues that a record of a topic may have units in, each once, in the order in which they are named.

    Args:
        names: INNER_MULTI_DISPATCH, split by commas.
        topic: of the record: the queues of lite topics are for records of their parent.
    """
    return tuple(dict.fromkeys(name for name in names.split(",") if _takes(name, topic)))


def encode_light_positions(positions: Sequence[int]) -> bytes:
    """INNER_MULTI_QUEUE_OFFSET as it stands in a property string."""
    return f"{MULTI_QUEUE_OFFSET}\x01{','.join(map(str, positions))}\x02".encode()


def light_places(names: str, offsets: str, topic: str | None = None) -> tuple[LightPlace, ...]:
    """The light queues that a record has a unit in, as it was stored (`ConsumeQueue` of RocketMQ 5.3.3 and 5.5.0).

    Args:
        names: INNER_MULTI_DISPATCH, split by commas.
        offsets: INNER_MULTI_QUEUE_OFFSET, as many positions.
        topic: of the record; None: it is not looked whether a lite topic is one of it.

    Returns:
        In the order of the names, without those that are no light queue. A broker gives these an empty position, at which its
        own dispatch then stops, or leaves out the record. None at all when the texts have different counts.
    """
    queues, places = names.rstrip(",").split(","), offsets.split(",")
    if len(queues) != len(places):
        return ()
    return tuple(
        LightPlace(queue, int(place))
        for queue, place in zip(queues, places, strict=True)
        if _is_position(place) and _takes(queue, topic)
    )


def _takes(queue: str, topic: str | None) -> bool:
    """Whether this is a light queue that takes records of a topic."""
    if not can_be_light_queue(queue):
        return False
    lite = None if topic is None else split_lite_queue(queue)
    return lite is None or lite[0] == topic


def stands_at(properties: Mapping[str, str], queue: str, queue_offset: int) -> bool:
    """Whether a record's properties say that it is the message of this position of a light queue."""
    places = light_places(properties.get(MULTI_DISPATCH, ""), properties.get(MULTI_QUEUE_OFFSET, ""))
    return LightPlace(queue, queue_offset) in places


def _is_position(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= POSITION_DIGITS_MAX


def dispatched_to(properties: Mapping[str, str]) -> frozenset[str]:
    """The queues besides its own that a record has a unit in (`MultiDispatchUtils`); empty for most records."""
    names = properties.get(MULTI_DISPATCH, "")
    return frozenset(name for name in names.split(",") if name)
