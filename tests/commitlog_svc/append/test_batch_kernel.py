"""The batch kernel by itself: compiled and as plain Python it says and writes the same for any bytes."""

import random
from typing import Any

import numpy as np
import pytest

from commitlog_svc.append import layout
from commitlog_svc.append.scanned_batch import KERNEL
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage
from tests.commitlog_svc.batches import KEY_TEXT, BatchRun, columns_of, damaged
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import request_of
from tests.support.kernels import FORMS, LoadKernel

SEED = 20_261_129
INPUT_COUNT = 4_000
COLUMNS = columns_of({"orders": 8, "b": 1, "c" * 127: 3})
MESSAGES = [
    new_message(),
    new_message(b"x" * 300, "b", keys=["a", "b", "a"], tags="T", queue_id=0, flag=-1),
    new_message(topic="c" * 127, unique_key="mine", properties={"b": "2", "a": "1", "ab": "3", "B": " "}),
    new_message(queue_id=7, flag=(1 << 31) - 1, unique_key="k" * 50, keys=["k" * 9]),
]
MESSAGES[0].born_time.FromMilliseconds(253_402_300_799_999)


@pytest.fixture
def run(load_kernel: LoadKernel) -> BatchRun:
    return BatchRun(load_kernel, COLUMNS)


def test_both_forms_say_and_write_the_same_for_damaged_requests() -> None:
    """Bounds, wrap-around of integers and signed shifts agree: what differs would be served by one of them only."""
    chance = random.Random(SEED)
    runs = [BatchRun(form, COLUMNS) for form in FORMS.values()]
    taken = 0
    for _ in range(INPUT_COUNT):
        whole = request_of(*chance.choices(MESSAGES, k=chance.randint(1, 3)), flush=chance.randint(0, 3))
        data = damaged(whole, chance)
        compiled, uncompiled = (run.outcome(data) for run in runs)
        assert compiled == uncompiled, data.hex()
        taken += compiled[0] > 0
    assert INPUT_COUNT // 20 < taken < INPUT_COUNT


def varint(value: int, size: int) -> bytes:
    """A varint of so many bytes."""
    return bytes(value >> 7 * place & 0x7F | (0x80 if place < size - 1 else 0) for place in range(size))


@pytest.mark.parametrize("field", [pb.AppendMessagesRequest.FLUSH_FIELD_NUMBER, 0])
@pytest.mark.parametrize("size", range(1, 12))
def test_both_forms_read_varints_at_the_edges_of_64_bits_alike(field: int, size: int) -> None:
    edges = {
        sign * (1 << bits) + near for bits in (0, 7, 31, 32, 62, 63, 64, 70) for near in (-1, 0, 1) for sign in (1, -1)
    }
    runs = [BatchRun(form, COLUMNS) for form in FORMS.values()]
    for value in sorted(edges):
        bytes_ = varint(value, size)
        data = request_of(new_message(queue_id=1))
        if field:
            data += bytes([field << 3]) + bytes_
        else:  # the flag of a message
            message = new_message(queue_id=1).SerializeToString() + bytes([layout.FLAG_TAG]) + bytes_
            data = bytes([layout.REQUEST_MESSAGES_TAG]) + varint(len(message), 2) + message
        compiled, uncompiled = (run.outcome(data) for run in runs)
        assert compiled == uncompiled, (value, data.hex())
        if not field and size == 10 and compiled[0] > 0:
            assert np.int32(NewMessage.FromString(message).flag) == value & 0xFFFFFFFF | -(value >> 31 & 1) << 32


def test_a_record_that_the_room_does_not_hold_is_not_written_beyond_it(load_kernel: LoadKernel) -> None:
    data = request_of(*MESSAGES)
    roomy = BatchRun(load_kernel, COLUMNS)
    assert roomy.scan(data) == len(MESSAGES)
    size = roomy.batch.size_bytes
    for room in (0, 1, 91, size - 1):
        run = BatchRun(load_kernel, COLUMNS, records_bytes=room)
        assert run.scan(data) == run.kernel.NOT_MINE
    assert BatchRun(load_kernel, COLUMNS, records_bytes=size).scan(data) == len(MESSAGES)
    tight = BatchRun(load_kernel, COLUMNS, record_bytes_max=int(roomy.rows[:4, layout.RECORD_SIZE].max()) - 1)
    assert tight.scan(data) == tight.kernel.NOT_MINE


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (layout.RECORD_BEGIN, -1), (layout.RECORD_BEGIN, 1 << 62), (layout.RECORD_BEGIN, -(1 << 63)),
        (layout.RECORD_SIZE, 0), (layout.RECORD_SIZE, -1), (layout.RECORD_SIZE, 1 << 62), (layout.RECORD_SIZE, (1 << 63) - 1),
        (layout.UNIQUE_KEY_BEGIN, -1), (layout.UNIQUE_KEY_BEGIN, 1 << 62), (layout.UNIQUE_KEY_SIZE, -1),
        (layout.UNIQUE_KEY_SIZE, (1 << 63) - 1), (layout.TOPIC_NUMBER, -1), (layout.TOPIC_NUMBER, 3),
    ],
)  # fmt: skip
def test_no_step_goes_beyond_a_row_that_is_not_valid(run: BatchRun, column: int, value: int) -> None:
    assert run.scan(request_of(*MESSAGES)) == 4
    run.rows[2, column] = value
    assert run.fill() == 2
    assert run.place() == 2
    assert run.queue_offsets.sum() == 2, "the caller takes back what was placed"
    if column != layout.TOPIC_NUMBER:
        assert run.answer() == b""


@pytest.mark.parametrize("table", ["records", "rows", "turns", "spans"])
def test_tables_of_a_batch_that_are_too_small_are_refused(load_kernel: LoadKernel, table: str) -> None:
    kernel = load_kernel(KERNEL)
    sizes: dict[str, Any] = {
        "records": np.zeros(0, dtype=np.uint8),
        "rows": np.zeros((1, layout.ROW_COLUMN_COUNT), dtype=np.int64),
        "turns": np.zeros((layout.TURN_COUNT_MAX, layout.TURN_COLUMN_COUNT), dtype=np.int64),
        "spans": np.zeros(kernel.SPAN_COUNT, dtype=np.int64),
    }
    kernel.Batch(*sizes.values())
    if table == "records":
        return  # any room will do: a record that does not fit is not taken
    sizes[table] = np.zeros([size - 1 for size in sizes[table].shape], dtype=np.int64)
    with pytest.raises(ValueError, match="too small"):
        kernel.Batch(*sizes.values())


def test_generated_keys_count_on_and_wrap_at_four_digits(run: BatchRun) -> None:
    assert run.scan(request_of(*[new_message(b"%d" % number) for number in range(4)])) == 4
    assert run.fill(key_counter=0xFFFE) == 4
    keys = [
        run.records[row[layout.UNIQUE_KEY_BEGIN] :][: row[layout.UNIQUE_KEY_SIZE]].tobytes() for row in run.rows[:4]
    ]
    assert keys == [KEY_TEXT + end for end in (b"FFFE", b"FFFF", b"0000", b"0001")]


def test_receipts_have_the_digits_of_any_offset(run: BatchRun) -> None:
    assert run.scan(request_of(new_message())) == run.fill() == 1
    for offset in (0, 9, 10, 0x9A, 0xFFFFFFFF, 1 << 32, 0x0123456789ABCDEF, (1 << 63) - 1_000):
        assert run.place(offset) == 1
        receipt = pb.AppendMessagesResponse.FromString(run.answer()).results[0]
        assert receipt.offset_msg_id == f"0A01020300002A9F{offset:016X}"
        assert receipt.commit_log_offset == offset
