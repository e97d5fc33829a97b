"""Questions about messages, and what RocketMQ answers by its own rules, with its bugs or some of them.

So a difference between its answer and the right one can be named: it is explained when its rules with these bugs give just what
it answered.
"""

import base64
import dataclasses
import functools
import itertools
from collections.abc import Sequence

from store.format.record import Record

LONG_MAX = (1 << 63) - 1
# What RocketMQ does wrong, what of it is seen, and where it stands in 5.3.3 and 5.5.0.
BUGS = {
    "budget": (
        "every entry with the right hash uses up one of the wanted results; whether it has the key is looked at later",
        "IndexFile.selectPhyOffset counts, MQAdminImpl.queryMessage compares",
    ),
    "seconds": (
        "entries hold whole seconds, rounded down, and a window is compared with those",
        "IndexFile.putKey and selectPhyOffset",
    ),
    "twice": (
        "a key that a message has twice has two entries: the message comes twice and uses up two results",
        "IndexService.buildIndex, IndexService.queryOffset",
    ),
    "cap": ("never more than 64 results, without a word", "MessageStoreConfig.maxMsgsNumBatch"),
    "one copy": ("of several messages with one unique key only one is shown", "MQAdminImpl.queryMessageByUniqKey"),
}
KEY_BUGS = ("budget", "seconds", "twice", "cap")
CAP = 64


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked; which fields count depends on the kind."""

    kind: str
    topic: str
    key: str = ""
    count: int = 32
    begin: int = 0
    end: int = LONG_MAX
    queue_id: int = 0
    number: int = 0

    def line(self) -> str:
        numbers = {
            "key": (text(self.key), self.count, self.begin, self.end),
            "id": (text(self.key),),
            "unique_key": (text(self.key),),
            "offset": (self.queue_id, self.number),
            "time": (self.queue_id, self.number),
        }[self.kind]
        return "\t".join(map(str, (self.kind, text(self.topic), *numbers)))


@dataclasses.dataclass(frozen=True)
class Answer:
    """Commit-log offsets in RocketMQ's log, or a queue offset."""

    found: tuple[int, ...] = ()
    queue_offset: int | None = None

    @classmethod
    def of_row(cls, row: Sequence[str]) -> "Answer":
        if row[1] == "OFFSET":
            return cls(queue_offset=int(row[2]))
        return cls(tuple(map(int, row[2].split(","))) if row[1] == "FOUND" else ())


def java_string_hash(value: str) -> int:
    """String.hashCode, by its definition, over UTF-16."""
    result = 0
    units = value.encode("utf-16-be")
    for at in range(0, len(units), 2):
        result = (31 * result + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return result


@functools.cache  # hundreds of questions look at each key of a log
def index_hash(topic: str, key: str) -> int:
    """IndexFile.indexKeyHashMethod: Math.abs, and 0 where that is negative."""
    value = java_string_hash(f"{topic}#{key}")
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return abs(signed) if signed != -(1 << 31) else 0


def rocketmqs_rules(question: Question, records: Sequence[Record], bugs: frozenset[str]) -> list[int]:
    """The answer to a key question by the rules of RocketMQ with these bugs; without any, the right one."""
    wanted = index_hash(question.topic, question.key)
    begin_millis = next(r.store_time_millis for r in records if r.unique_key or r.keys)
    results: list[int] = []
    count = min(question.count, CAP) if "cap" in bugs else question.count
    for record in reversed(records):
        time = record.store_time_millis
        if "seconds" in bugs:
            time = begin_millis + (time - begin_millis) // 1000 * 1000
        if not question.begin <= time <= question.end:
            continue
        is_match = record.topic == question.topic and question.key in record.keys
        keys = [key for key in (record.unique_key, *record.keys) if key]
        hits = sum(index_hash(record.topic, key) == wanted for key in keys)
        if "budget" not in bugs:
            hits = hits if is_match else 0
        if "twice" not in bugs:
            hits = min(hits, 1)
        for _ in range(hits):
            if len(results) < count:
                results.append(record.commit_log_offset if is_match else -1)
    return [offset for offset in results if offset >= 0]


def explanation(
    question: Question, records: Sequence[Record], theirs: Answer, right: Sequence[int]
) -> frozenset[str] | None:
    """The fewest bugs with which RocketMQ's answer comes about; None when none of them explain it."""
    if question.kind == "unique_key":
        one = len(theirs.found) == 1 < len(right) and theirs.found[0] in right
        return frozenset({"one copy"}) if one else None
    if question.kind != "key":
        return None
    for size in range(1, len(KEY_BUGS) + 1):
        for bugs in itertools.combinations(KEY_BUGS, size):
            if sorted(rocketmqs_rules(question, records, frozenset(bugs))) == sorted(theirs.found):
                return frozenset(bugs)
    return None
