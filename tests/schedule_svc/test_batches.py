"""Batches are read in parts that the log's files give, in the order of their units."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.batches import BatchReader
from services.calling.commitlog import FILE_READ_BYTES_MAX
from services.reading.queue_reader import ANSWER_BODY_BYTES_MAX
from store.format.derived.queue_unit import QueueUnit


@pytest.mark.parametrize("seed", range(10))
def test_a_batch_is_read_in_parts_that_need_no_call_of_the_commit_log_service(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice((90, 1_400, 300_000, FILE_READ_BYTES_MAX, 3 << 20)) for _ in range(chance.randint(0, 40))]
    units = [QueueUnit(number, size_bytes, 0) for number, size_bytes in enumerate(sizes)]
    parts: list[Sequence[QueueUnit]] = []

    class Reader:
        def records(self, part: Sequence[QueueUnit], body_bytes_max: int) -> Sequence[StoredMessage]:
            assert body_bytes_max == ANSWER_BODY_BYTES_MAX
            parts.append(part)
            return [StoredMessage(commit_log_offset=unit.commit_log_offset) for unit in part]

    reader: Any = Reader()
    outcomes: Any = BatchReader(reader, reader).read(units)
    assert [one.commit_log_offset for one in outcomes] == list(range(len(sizes)))
    for number, part in enumerate(parts):
        size_bytes = sum(unit.record_size_bytes for unit in part)
        assert size_bytes <= FILE_READ_BYTES_MAX or len(part) == 1
        if number + 1 < len(parts):  # no part is smaller than it has to be
            assert size_bytes + parts[number + 1][0].record_size_bytes > FILE_READ_BYTES_MAX
