r"""What clients of RocketMQ with tracing on say of messages: the bodies of the messages on a trace topic.

A body is UTF-8 text of many entries, of several messages. Fields end with \x01, an entry ends with \x02, missing texts are the
word `null`. KEYS of the trace message are the unique keys and the business keys of all its entries.

    field   Pub            SubBefore      SubAfter       EndTransaction    Recall
    1       time           time           request id     time              time
    2       region         region         UNIQUE KEY     region            region
    3       group          group          cost           group             group
    4       topic          request id     is success     topic             topic
    5       UNIQUE KEY     UNIQUE KEY     keys           UNIQUE KEY        UNIQUE KEY
    6       tags           retry count    context code   tags              is success
    7       keys           keys           time           keys
    8       store host                    group          store host
    9       body (bytes)                                 message type
    10      cost                                         transaction id
    11      message type                                 verdict
    12      offset msg id                                is from check
    13      is success

Times are milliseconds since 1970 by the client's clock, costs are milliseconds; that of a consumption is its time by the number
of messages that the handler got at once. Field 6 of SubAfter is absent in clients before 4.5, fields 7 and 8 in those of 4.9
before 4.9.3 and with AccessChannel.CLOUD: SubBefore has the group, and the same request id. Pub of old clients lacks field 12
(then field 12 is the success), or has the client's address behind the success.

Source: `TraceDataEncoder`, `TraceView` and `ConsumeMessageTraceHookImpl` of RocketMQ 4.9.8 to 5.5.0.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from store.format.java_text import decode_java_utf8

FIELD_END, ENTRY_END = b"\x01", b"\x02"
NULL = "null"
# Longer texts of an entry are cut: names are shorter, and an entry may be anything.
TEXT_CHARACTERS_MAX = 255
FIELD_COUNT_MAX = 15
# Entries of a body that are looked at: those of other messages may hold a short unique key, too. A client sends some hundred
# entries at once.
LOOKED_COUNT_MAX = 10_000
TIME_MILLIS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
INT32_MAX = (1 << 31) - 1


class TraceKind(Enum):
    """What an entry says; the values are RocketMQ's words."""

    SEND = "Pub"
    BEFORE_CONSUMING = "SubBefore"
    AFTER_CONSUMING = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class MessageType(IntEnum):
    """The kind of a message by its producer (`MessageType`)."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeReturn(IntEnum):
    """How a handler ended (`ConsumeReturnType`, the context code)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class TraceEntry(NamedTuple):
    """An entry. What its kind does not have, and a number that the client left out, is None or empty.

    Attributes:
        kind: what it says.
        unique_key: of the message.
        client_host: where the trace message came from.
        time_millis: when the client began; of AFTER_CONSUMING when it had ended (ms since 1970).
        cost_millis: how long it took.
        is_success: whether it was successful.
        group: of the producer or the consumer.
        topic: as the client names it, without its namespace.
        store_host: the broker's address.
        offset_msg_id: of the message.
        message_type: a MessageType, or a number of a later release.
        request_id: joins the two entries of a consumption.
        retry_count: how often the message came before.
        consume_return: a ConsumeReturn, or a number of a later release.
        verdict: RocketMQ's word: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW.
        is_from_check: whether the broker had asked for the verdict.
    """

    kind: TraceKind
    unique_key: str
    client_host: str
    time_millis: int | None = None
    cost_millis: int | None = None
    is_success: bool | None = None
    group: str = ""
    topic: str = ""
    store_host: str = ""
    offset_msg_id: str = ""
    message_type: int | None = None
    request_id: str = ""
    retry_count: int | None = None
    consume_return: int | None = None
    verdict: str = ""
    is_from_check: bool = False


class TraceBody(NamedTuple):
    """The entries of a body about one message, in its order.

    Attributes:
        entries: those that can be read.
        damaged_count: those that name the message and cannot be read.
        is_cut: there are more than the caller wanted.
    """

    entries: list[TraceEntry]
    damaged_count: int
    is_cut: bool


class TraceEvent(NamedTuple):
    """Something that happened to a message.

    Attributes:
        entry: what a client said; of a consumption its beginning, or its end where no beginning was sent.
        end: of a consumption what was said at its end; None: nothing was, or has not come yet.
    """

    entry: TraceEntry
    end: TraceEntry | None = None

    @property
    def begin_millis(self) -> int | None:
        """When it began (ms since 1970); None when no client said so."""
        return self.entry.time_millis if self.entry is not self.end else None

    @property
    def sort_millis(self) -> int:
        """Its place among others; 0 without a time."""
        return self.entry.time_millis or 0


def decode_trace_body(body: bytes, unique_key: str, client_host: str, entry_count_max: int) -> TraceBody:
    """The entries about a message; never fails.

    Args:
        body: of the trace message, inflated.
        unique_key: of the message.
        client_host: where the trace message came from.
        entry_count_max: entries that are read, damaged ones included; at most LOOKED_COUNT_MAX are looked at.
    """
    found = TraceBody([], 0, is_cut=False)
    wanted = unique_key.encode("utf-8", "surrogatepass")
    if not wanted or ENTRY_END in wanted or FIELD_END in wanted:  # it can be no field
        return found
    damaged_count = looked_count = 0
    at = body.find(wanted)
    while at >= 0:
        if looked_count == LOOKED_COUNT_MAX:
            return found._replace(damaged_count=damaged_count, is_cut=True)
        looked_count += 1
        begin = body.rfind(ENTRY_END, 0, at) + 1
        end = body.find(ENTRY_END, at)
        end = len(body) if end < 0 else end
        fields = [
            decode_java_utf8(field)[:TEXT_CHARACTERS_MAX] for field in body[begin:end].split(FIELD_END, FIELD_COUNT_MAX)
        ]
        if _is_about(fields, unique_key):
            if len(found.entries) + damaged_count == entry_count_max:
                return found._replace(damaged_count=damaged_count, is_cut=True)
            try:
                found.entries.append(_entry(fields, client_host))
            except (ValueError, IndexError):
                damaged_count += 1
        at = body.find(wanted, end)
    return found._replace(damaged_count=damaged_count)


def join_traces(entries: Iterable[TraceEntry]) -> list[TraceEvent]:
    """What happened to a message, in the order of the clients' clocks; what was told twice is there once."""
    ends: dict[str, TraceEntry] = {}
    begins: list[TraceEntry] = []
    for entry in dict.fromkeys(entries):
        if entry.kind is TraceKind.AFTER_CONSUMING:
            ends[entry.request_id] = entry
        else:
            begins.append(entry)
    events = [
        TraceEvent(each, ends.pop(each.request_id, None) if each.kind is TraceKind.BEFORE_CONSUMING else None)
        for each in begins
    ]
    events += [TraceEvent(each, each) for each in ends.values()]
    return sorted(events, key=lambda event: event.sort_millis)


def _is_about(fields: Sequence[str], unique_key: str) -> bool:
    """Whether an entry is about the message, or is none that can be known: the key may be a business key of another one."""
    at = _KEY_FIELDS.get(fields[0])
    return unique_key in fields if at is None or len(fields) <= at else fields[at] == unique_key[:TEXT_CHARACTERS_MAX]


def _entry(fields: Sequence[str], client_host: str) -> TraceEntry:
    """The entry; ValueError or IndexError: it is damaged."""
    kind = TraceKind(fields[0])
    return _READERS[kind](fields, TraceEntry(kind, fields[_KEY_FIELDS[fields[0]]], client_host))


def _send(fields: Sequence[str], entry: TraceEntry) -> TraceEntry:
    has_id = len(fields) >= 14
    return entry._replace(
        time_millis=_time(fields[1]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        store_host=_text(fields[8]),
        cost_millis=_number(fields[10]),
        message_type=_number(fields[11]),
        offset_msg_id=_text(fields[12]) if has_id else "",
        is_success=_truth(fields[13 if has_id else 12]),
    )


def _before_consuming(fields: Sequence[str], entry: TraceEntry) -> TraceEntry:
    return entry._replace(
        time_millis=_time(fields[1]),
        group=_text(fields[3]),
        request_id=fields[4],
        retry_count=_number(fields[6]),
    )


def _after_consuming(fields: Sequence[str], entry: TraceEntry) -> TraceEntry:
    return entry._replace(
        request_id=fields[1],
        cost_millis=_number(fields[3]),
        is_success=_truth(fields[4]),
        consume_return=_number(fields[6]) if len(fields) > 6 and fields[6] else None,
        time_millis=_time(fields[7]) if len(fields) > 7 and fields[7] else None,
        group=_text(fields[8]) if len(fields) > 8 else "",
    )


def _end_transaction(fields: Sequence[str], entry: TraceEntry) -> TraceEntry:
    return entry._replace(
        time_millis=_time(fields[1]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        store_host=_text(fields[8]),
        message_type=_number(fields[9]),
        verdict=_text(fields[11]),
        is_from_check=_truth(fields[12]),
    )


def _recall(fields: Sequence[str], entry: TraceEntry) -> TraceEntry:
    return entry._replace(
        time_millis=_time(fields[1]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        is_success=_truth(fields[6]),
    )


_READERS: dict[TraceKind, Callable[[Sequence[str], TraceEntry], TraceEntry]] = {
    TraceKind.SEND: _send,
    TraceKind.BEFORE_CONSUMING: _before_consuming,
    TraceKind.AFTER_CONSUMING: _after_consuming,
    TraceKind.END_TRANSACTION: _end_transaction,
    TraceKind.RECALL: _recall,
}
_KEY_FIELDS = {kind.value: 2 if kind is TraceKind.AFTER_CONSUMING else 5 for kind in TraceKind}


def _text(field: str) -> str:
    return "" if field == NULL else field


def _truth(field: str) -> bool:
    lowered = field.lower()
    if lowered not in ("true", "false"):  # as where the body was cut; Java would take it for false
        raise ValueError(field)
    return lowered == "true"


def _number(field: str) -> int:
    return _within(field, INT32_MAX)


def _time(field: str) -> int:
    return _within(field, TIME_MILLIS_MAX)


def _within(field: str, value_max: int) -> int:
    if not (field.isascii() and field.isdigit() and len(field) <= len(str(value_max))):
        raise ValueError(field)
    value = int(field)
    if value > value_max:
        raise ValueError(field)
    return value
