"""Every question that a small store can be asked, and the right answers by brute force over its records."""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.ports.deadline import Deadline
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_key, query_by_unique_key
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.page import PageEntry, PageTokens
from reput.message.v1 import message_pb2
from store.errors import StoreError
from store.format.host import Host
from store.format.message_id import encode_offset_msg_id
from store.format.record import Record
from store.format.sys_flag import INNER_BATCH, TRANSACTION_MASK
from tests.torture.local_shard import LAST_READ

TOKENS = PageTokens("torture")
FAN_OUT = FanOut(1)  # one shard is asked on the caller's thread
SECONDS_MAX = 60.0
QUEUED = (0x0, 0x8)
INDEXED = (0x0, 0x4, 0x8)

Question = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Records found, in the order of the answer; or what was wrong."""

    records: tuple[Record, ...] = ()
    error: StoreError | None = None
    is_complete: bool = True


def is_queued(record: Record) -> bool:
    """Whether it has a place in a queue that is served; those of batch topics are not."""
    return record.sys_flag & TRANSACTION_MASK in QUEUED and not record.sys_flag & INNER_BATCH


def right_answers(records: Iterable[Record]) -> dict[Question, tuple[Record, ...]]:
    """The answer to each question about these records, which are in log order."""
    by_age = list(records)
    found: dict[Question, list[Record]] = {}
    for record in by_age:
        found.setdefault(("offset", str(record.commit_log_offset)), []).append(record)
        if is_queued(record):
            found.setdefault(("queue", record.topic, str(record.queue_id)), []).append(record)
    for record in reversed(by_age):
        if record.sys_flag & TRANSACTION_MASK not in INDEXED:
            continue
        for key in dict.fromkeys(record.keys):
            found.setdefault(("key", record.topic, key), []).append(record)
        if record.unique_key:
            found.setdefault(("unique key", record.topic, record.unique_key), []).append(record)
    return {question: tuple(matches) for question, matches in found.items()}


def ask(shards: Shards, question: Question, *, window: TimeWindow | None = None, page_size: int = 1000) -> Answer:
    """One answer, all its pages; never raises a StoreError."""
    deadline = Deadline.after(SECONDS_MAX)
    try:
        match question:
            case ("offset", offset):
                entry = query_by_offset_msg_id(
                    shards, encode_offset_msg_id(Host("127.0.0.1", 10911), int(offset)), "", "", deadline
                )
                return Answer(_records([entry]))
            case ("queue", topic, queue_id):
                return _ask_queue(shards, topic, int(queue_id), page_size, deadline)
            case ("key" | "unique key" as kind, topic, key):
                return _ask_key(shards, kind, topic, key, window or TimeWindow(), page_size, deadline)
    except StoreError as error:
        return Answer(error=error)
    raise AssertionError(question)


def _ask_queue(shards: Shards, topic: str, queue_id: int, page_size: int, deadline: Deadline) -> Answer:
    found: list[Record] = []
    position, complete = 0, True
    while True:
        page = query_by_queue_offset(
            shards, topic, queue_id, position, broker_name="", page_size_asked=page_size, deadline=deadline
        )
        found += _records(page.entries)
        complete = complete and page.completeness != message_pb2.COMPLETENESS_PARTIAL
        if page.next_queue_offset <= position or page.next_queue_offset >= page.max_offset:
            return Answer(tuple(found), is_complete=complete)
        position = page.next_queue_offset


def _ask_key(
    shards: Shards, kind: str, topic: str, key: str, window: TimeWindow, page_size: int, deadline: Deadline
) -> Answer:
    found: list[Record] = []
    token, complete = "", True
    while True:
        if kind == "key":
            page = query_by_key(
                shards, TOKENS, topic, key, window, page_size_asked=page_size, page_token=token, deadline=deadline
            )
        else:
            page = query_by_unique_key(
                shards, TOKENS, topic, key, page_size_asked=page_size, page_token=token, deadline=deadline
            )
        found += _records(page.entries)
        complete = complete and page.completeness != message_pb2.COMPLETENESS_PARTIAL
        token = page.next_page_token
        if not token:
            return Answer(tuple(found), is_complete=complete)


def _records(entries: Iterable[PageEntry]) -> tuple[Record, ...]:
    return tuple(LAST_READ[entry.record.commit_log_offset] for entry in entries)
