"""AppendInternal in the log: what is stored, where, what is refused, and who sees it when."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.append.message_check import MESSAGE_COUNT_MAX
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from store.audit.store_audit import audit_store
from store.errors import (
    DiskFullError,
    InvalidArgumentError,
    InvalidMessageError,
    OffsetOutOfRangeError,
    StoreReadOnlyError,
)
from store.files.file_system import RealFileSystem
from store.format.record import encode_record
from store.format.request_mark import REQUEST_MARK, TAIL_SIZE_BYTES, RequestMark, decode_request_mark
from store.format.topic import decode_topic_table
from tests.commitlog_svc.internal import all_records, append_internal, internal_record
from tests.commitlog_svc.retention_bench import SizedFileSystem
from tests.commitlog_svc.support import BORN_HOST, append, new_message, open_log, read_tree
from tests.torture.local_shard import open_shard

PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC


def marks(frames: Sequence[bytes]) -> list[RequestMark | None]:
    """The mark of each record."""
    return [decode_request_mark(frame[-TAIL_SIZE_BYTES:]) for frame in frames]


def test_every_field_is_stored_as_given(tmp_path: Path) -> None:
    given = internal_record(
        b"body",
        "%RETRY%group_orders",
        3,
        flag=-7,
        sys_flag=COMMITTED | 0x301,
        properties={"REAL_TOPIC": "orders", "a": "b\x01c", "KEYS": "k1 k2", "UNIQ_KEY": "U", "TAGS": "T", "DELAY": "3"},
        born_host="[::1]:99",
        store_host="1.2.3.4:10911",
        reconsume_times=2,
        prepared_transaction_offset=12345,
    )
    given.born_time.FromMilliseconds(1_700_000_000_123)
    with open_log(tmp_path) as log:
        receipt = append_internal(log, given)[0]
        record = log.opened.reads.get(receipt.commit_log_offset)

    stored = (record.body, record.topic, record.queue_id, record.flag, record.sys_flag, str(record.born_host),
              str(record.store_host), record.reconsume_times, record.prepared_transaction_offset,
              record.born_time_millis)  # fmt: skip
    assert (b"body", "%RETRY%group_orders", 3, -7, COMMITTED | 0x311, "[::1]:99",
            "1.2.3.4:10911", 2, 12345, 1_700_000_000_123) == stored  # fmt: skip
    assert record.properties_bytes.startswith(
        b"KEYS\x01k1 k2\x02TAGS\x01T\x02UNIQ_KEY\x01U\x02DELAY\x013\x02REAL_TOPIC\x01orders\x02a\x01b\x01c\x02__CRC32#"
    )
    assert ("U", 0) == (receipt.unique_key, receipt.queue_offset)


def test_fields_left_out_are_those_of_the_append(tmp_path: Path) -> None:
    with open_log(tmp_path, properties_crc=False) as log:
        record = log.opened.reads.get(append_internal(log, internal_record(b""))[0].commit_log_offset)

        assert (b"", BORN_HOST, "127.0.0.1:10911") == (record.body, record.born_host, str(record.store_host))
        assert 0 <= record.store_time_millis - record.born_time_millis < 60_000
        assert b"" == record.properties_bytes  # a single record has no mark, and a CRC as the settings say


def test_records_of_a_request_lie_side_by_side_and_say_so(tmp_path: Path) -> None:
    given = [internal_record(b"x" * size, f"t{size % 2}", properties={"n": str(size)}) for size in (10, 300, 41)]
    with open_log(tmp_path, properties_crc=False) as log:
        append(log, new_message())
        receipts = append_internal(log, *given)
        records = [log.opened.reads.get(receipt.commit_log_offset) for receipt in receipts]

    frames = [encode_record(record) for record in records]
    sizes = [len(frame) for frame in frames]
    assert [receipt.end_offset for receipt in receipts[:-1]] == [receipt.commit_log_offset for receipt in receipts[1:]]
    assert [
        RequestMark(0, sizes[1] + sizes[2]),
        RequestMark(sizes[0], sizes[2]),
        RequestMark(sizes[0] + sizes[1], 0),
    ] == marks(frames)
    assert all(record.is_guarded for record in records)
    assert [0, 1, 0] == [receipt.queue_offset for receipt in receipts]


def test_a_copied_mark_and_crc_are_replaced(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        first = [
            log.opened.reads.get(each.commit_log_offset)
            for each in append_internal(log, internal_record(), internal_record())
        ]
        again = internal_record(properties=dict(first[0].properties) | {"MORE": "1"})
        single = log.opened.reads.get(append_internal(log, again)[0].commit_log_offset)
        double = log.opened.reads.get(append_internal(log, again, again)[1].commit_log_offset)

    assert ["MORE", "__CRC32#"] == list(single.properties)
    assert ["MORE", REQUEST_MARK, "__CRC32#"] == list(double.properties)
    assert double.properties[REQUEST_MARK].endswith(",0000000000")


def test_prepared_and_rolled_back_messages_take_no_queue_offset(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        flags = (0, PREPARED, ROLLED_BACK, COMMITTED, PREPARED, 0)
        receipts = append_internal(log, *[internal_record(sys_flag=flag) for flag in flags])
        ordinary = append(log, new_message(queue_id=0))

    assert [0, 0, 0, 1, 0, 2, 3] == [receipt.queue_offset for receipt in receipts + ordinary]


def test_a_request_that_does_not_fit_goes_whole_to_the_next_file(tmp_path: Path) -> None:
    with open_log(tmp_path, file_size_bytes=4096) as log:
        append(log, new_message(b"x" * 2000))
        receipts = append_internal(log, *[internal_record(b"y" * 700) for _ in range(3)])

        assert 4096 == receipts[0].commit_log_offset
        assert 8192 > receipts[-1].end_offset
        assert 4 == len(all_records(log))


def test_a_moved_message_of_the_largest_size_goes_with_the_record_that_says_so(tmp_path: Path) -> None:
    with open_log(tmp_path, file_size_bytes=16 << 20) as log:
        receipts = append_internal(log, internal_record(b"x" * (4 << 20)), internal_record(b"y" * (64 << 10)))

        assert 2 == len(receipts)
        with pytest.raises(InvalidArgumentError):
            append_internal(log, internal_record(b"x" * (4 << 20)), internal_record(b"y" * (65 << 10)))


def test_a_request_that_fits_into_no_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path, file_size_bytes=4096) as log:
        append(log, new_message())
        before = log.status.end_offset
        with pytest.raises(InvalidArgumentError) as refused:
            append_internal(log, *[internal_record(b"y" * 1300) for _ in range(3)])

        assert ("records", "4088") == (refused.value.metadata["field"], refused.value.metadata["sizeBytesMax"])
        assert before == log.status.end_offset == append_internal(log, internal_record())[0].commit_log_offset


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("topic", {"topic": ""}),
        ("topic", {"topic": "a b"}),
        ("queue_id", {"queue_id": -1}),
        ("queue_id", {"queue_id": 65_536}),
        ("sys_flag", {"sys_flag": -1}),
        ("sys_flag", {"sys_flag": 0x800}),
        ("sys_flag", {"sys_flag": 0x80}),
        ("reconsume_times", {"reconsume_times": -1}),
        ("prepared_transaction_offset", {"prepared_transaction_offset": -1}),
        ("born_host", {"born_host": "nowhere"}),
        ("store_host", {"store_host": "1.2.3.4"}),
        ("properties", {"properties": {"": "x"}}),
        ("properties", {"properties": {"x": ""}}),
        ("properties", {"properties": {"x\x01": "y"}}),
        ("properties", {"properties": {"x": "y\x02"}}),
        ("properties", {"properties": {"x": "y" * 32_767}}),
    ],
)
def test_a_bad_record_is_named_and_changes_nothing(tmp_path: Path, field: str, fields: dict[str, Any]) -> None:
    with open_log(tmp_path) as log:
        append(log, new_message())
        before = {name: data for name, data in read_tree(tmp_path).items() if not name.startswith("reput")}
        with pytest.raises(InvalidMessageError) as refused:
            append_internal(log, internal_record(topic="new"), internal_record(**fields))

        assert (field, "1") == (refused.value.metadata["field"], refused.value.metadata["index"])
        assert before == {name: data for name, data in read_tree(tmp_path).items() if not name.startswith("reput")}


@pytest.mark.parametrize(
    "records", [[], [internal_record()] * (MESSAGE_COUNT_MAX + 1), [internal_record(b"x" * 3_000_000)] * 2]
)
def test_a_request_of_a_wrong_size_is_refused(tmp_path: Path, records: list[InternalRecord]) -> None:
    with open_log(tmp_path) as log:
        with pytest.raises(InvalidArgumentError) as refused:
            append_internal(log, *records)

        assert "records" == refused.value.metadata["field"]
        assert 0 == log.status.end_offset


def test_topics_come_into_being_also_without_auto_create(tmp_path: Path) -> None:
    with open_log(tmp_path, auto_create_topic=False, default_topic_queue_count=4) as log:
        append_internal(log, internal_record(topic="SCHEDULE_TOPIC_XXXX", queue_id=17), internal_record(topic="%DLQ%g"))

    table = decode_topic_table((tmp_path / "config" / "topics.json").read_bytes())
    assert {"SCHEDULE_TOPIC_XXXX": 18, "%DLQ%g": 1} == {name: topic.read_queue_count for name, topic in table.items()}


def test_a_read_only_log_takes_none(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, new_message())
    with open_log(tmp_path, read_only=True) as log, pytest.raises(StoreReadOnlyError):
        append_internal(log, internal_record())


def test_a_full_disk_stops_new_messages_before_it_stops_services(tmp_path: Path) -> None:
    fs = SizedFileSystem()
    with open_log(tmp_path, fs) as log:
        append(log, new_message())

        def leave(free_bytes: int) -> None:
            fs.free_bytes = free_bytes
            assert log._refusals.disk is not None
            log._refusals.disk.look()  # as after LOOK_SECONDS

        leave(10)  # of 100: full
        with pytest.raises(DiskFullError):
            append(log, new_message())
        assert 1 == len(append_internal(log, internal_record()))

        leave(6)
        assert 1 == len(append_internal(log, internal_record()))

        leave(5)
        with pytest.raises(DiskFullError):
            append_internal(log, internal_record())
        leave(100)


class _HalfWay(RealFileSystem):
    """Calls `on_half` in the middle of a write of several parts."""

    def __init__(self) -> None:
        self.on_half: Callable[[], None] = lambda: None

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        data = b"".join(parts)
        half = len(data) * 2 // 3
        os.pwrite(fd, data[:half], position)
        self.on_half()
        os.pwrite(fd, data[half:], position + half)


def test_nothing_is_seen_of_a_request_before_all_of_it_is_written(tmp_path: Path) -> None:
    fs = _HalfWay()
    with open_log(tmp_path, fs, flush_interval_millis=1) as log:
        append(log, new_message())
        begin = log.status.end_offset
        seen: list[tuple[int, int]] = []

        def look() -> None:
            with pytest.raises(OffsetOutOfRangeError):
                log.opened.reads.get(begin)
            for file in log._files.files:
                file.flush()  # a flush of another request's bytes
            seen.append((log.status.end_offset, log.status.flushed_offset))

        fs.on_half = look
        receipts = append_internal(log, *[internal_record() for _ in range(3)])
        fs.on_half = lambda: None

        assert [(begin, begin)] == seen
        assert receipts[-1].end_offset == log.status.flushed_offset
        assert 4 == len(all_records(log))


def test_a_deduplicated_message_inside_a_request_does_not_show_half_of_it(tmp_path: Path) -> None:
    """A receipt's end may lie inside a request; what is noted as written are ends of requests only."""
    with open_log(tmp_path, flush_interval_millis=60_000) as log:
        append_internal(log, internal_record(properties={"UNIQ_KEY": "U"}), internal_record(), sync=False)
        log.opened.appends.append_messages(
            [new_message(unique_key="a")], sync=True, born_host=BORN_HOST, deduplicate=True
        )
        noted: list[int] = []
        note_written = log._commits.note_written

        def note(offset: int) -> None:
            noted.append(offset)
            note_written(offset)

        log._commits.note_written = note  # type: ignore[method-assign]  # listens to what a flush may cover
        known = log.opened.appends.append_messages(
            [new_message(unique_key="U")], sync=True, born_host=BORN_HOST, deduplicate=True
        )

        assert known[0].deduplicated
        assert [] == noted


def test_queues_and_index_are_built_and_fsck_finds_nothing(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        for number in range(20):
            append_internal(
                shard.log,
                internal_record(
                    b"%d" % number, "%RETRY%g", properties={"KEYS": f"k{number}", "UNIQ_KEY": f"U{number}"}
                ),
                internal_record(b"half", "RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=PREPARED),
                internal_record(b"state", "REPUT_STATE", properties={"GROUP": "g"}),
            )
        shard.catch_up()

    audit = audit_store(RealFileSystem(), tmp_path)
    assert {} == audit.findings.finding_counts
    assert 40 == audit.unit_count
