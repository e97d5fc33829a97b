"""The batch kernel in one form, with tables of its own: requests go in, and everything that it writes comes out."""

import random
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from commitlog_svc.append import layout
from commitlog_svc.append.message_check import REFUSED_PROPERTIES, WATCHED_WIRE_PROPERTIES
from commitlog_svc.append.scanned_batch import KERNEL
from commitlog_svc.append.topics.queue_offsets import QueueKey
from commitlog_svc.append.topics.topic_columns import KnownTopics, TopicColumns, hash_table
from store.format.host import Host
from store.format.record import encode_head
from tests.support.kernels import LoadKernel

HOST, HOST_V6 = Host("10.1.2.3", 10911), Host("fd00::7", 10911)
TIME_MILLIS = 1_700_000_000_123
KEY_TEXT = b"0A010203" * 3 + b"ABCD"


def columns_of(queue_counts: Mapping[str, int]) -> TopicColumns:
    """Topics with so many queues each."""
    known, keys = KnownTopics(), list[QueueKey]()

    def give_slots(fresh: list[QueueKey]) -> list[int]:
        keys.extend(fresh)
        return list(range(len(keys) - len(fresh), len(keys)))

    for topic, queue_count in queue_counts.items():
        known.add(topic, queue_count, give_slots)
    return known.columns


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three places changed, left out or added."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randint(1, 4)]
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 10))
            case _:
                changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


class BatchRun:
    """The steps of one request after the other, by one form of the kernel.

    Args:
        load_kernel: the form.
        columns: the topics.
        record_bytes_max, records_bytes: the largest record, and room for all of a request.

    Attributes:
        kernel, batch, records, rows, turns: the kernel, and what it fills.
        queue_offsets: next offsets.
    """

    def __init__(
        self,
        load_kernel: LoadKernel,
        columns: TopicColumns,
        *,
        record_bytes_max: int = 1 << 20,
        records_bytes: int = 1 << 16,
    ) -> None:
        kernel: ModuleType = load_kernel(KERNEL)
        self.kernel = kernel
        self.records = np.zeros(records_bytes, dtype=np.uint8)
        self.rows = np.zeros((16, layout.ROW_COLUMN_COUNT), dtype=np.int64)
        self.turns = np.zeros((layout.TURN_COUNT_MAX, layout.TURN_COLUMN_COUNT), dtype=np.int64)
        self.batch = kernel.Batch(self.records, self.rows, self.turns, np.zeros(kernel.SPAN_COUNT, dtype=np.int64))
        self.queue_offsets = np.zeros(len(columns.queue_slots), dtype=np.int64)
        self._head = kernel.Head(encode_head(HOST, HOST), encode_head(HOST_V6, HOST), is_v6=False)
        self._topics = kernel.Topics(*columns[1:])
        self._hashes = np.arange(5, 5 + len(columns.sizes), dtype=np.int64)
        self._rules = kernel.Rules(
            kernel.Names(hash_table(sorted(REFUSED_PROPERTIES), 256)),
            kernel.Names(hash_table(sorted(WATCHED_WIRE_PROPERTIES), 64)),
            message_count_max=100,
            body_bytes_max=40_000,
            request_body_bytes_max=60_000,
            record_bytes_max=record_bytes_max,
            generated_key_size=len(KEY_TEXT) + 4,
            is_guarded=True,
        )

    def scan(self, data: bytes) -> int:
        """The number of messages, or NOT_MINE."""
        return int(self.kernel.scan(self.batch, self._rules, self._topics, self._head, data, TIME_MILLIS))

    def fill(self, *, hash_factor: int = 12_345_678_901_234_567, key_counter: int = 0xFFFE) -> int:
        """How many messages were filled."""
        return int(self.kernel.fill(self.batch, KEY_TEXT, key_counter, self._hashes, hash_factor))

    def place(self, commit_log_offset: int = (1 << 40) + 5) -> int:
        """How many messages were placed."""
        return int(self.kernel.place(self.batch, commit_log_offset, TIME_MILLIS, self.queue_offsets))

    def answer(self) -> bytes:
        """The receipts."""
        target = bytearray(64 << 10)
        size = self.kernel.answer(self.batch, TIME_MILLIS, b"0A01020300002A9F", "broker-ä".encode(), target)
        return bytes(target[: max(size, 0)])

    def outcome(self, data: bytes) -> Any:
        """All that the four steps say and write."""
        count = self.scan(data)
        batch, written = self.batch, self.records[: max(self.batch.size_bytes, 0)]
        said = (
            count, batch.count, batch.size_bytes, batch.flush, batch.is_deduplicated,
            batch.generated_count, batch.keys_bytes, batch.turn_count, self.turns.tolist(),
        )  # fmt: skip
        if count <= 0:
            return said
        steps = self.fill(), self.place(), self.answer()
        return *said, *steps, written.tobytes(), self.rows[:count].tolist(), self.queue_offsets.tolist()
