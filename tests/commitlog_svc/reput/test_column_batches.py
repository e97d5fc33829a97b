"""The log as columns: the same records as requests, decoded once for all who are at the same place, within bounds."""

import threading
from pathlib import Path

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.reput import column_batches
from commitlog_svc.reput.column_batches import CACHE_SECONDS, COLUMN_BYTES_MAX, ColumnBatches
from commitlog_svc.reput.reput import ANSWER_BYTES_MAX, read_batch
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.convert import dispatch_to_proto
from services.reput_columns import ALL_COLUMNS, columns_from_proto, columns_from_requests, columns_to_proto
from store.derive.dispatch_columns import DispatchColumns
from store.errors import OffsetOutOfRangeError, RecordCorruptedError
from store.files.mapped_files import MappedFileQueue
from tests.commitlog_svc.support import append, new_message, open_log
from tests.store.walk.logs import frames_of, message, open_files
from tests.support.waiting import WAIT_SECONDS_MAX


def servicer(log: CommitLog) -> CommitLogServicer:
    return CommitLogServicer(log, "broker-a", "127.0.0.1:10911")


def answers(log: CommitLog, **request: object) -> list[pb.ReputResponse]:
    """All batches up to the end of the flushed log."""
    found = []
    for answer in servicer(log).Reput(pb.ReputRequest(start_offset=-1, **request), None):
        found.append(answer)
        if answer.next_offset >= log.status.flushed_offset:
            break
    return found


def rows(columns: DispatchColumns) -> list[tuple[object, ...]]:
    """Record by record, with its topic and its keys' hashes."""
    keys: list[list[int]] = [[] for _ in range(len(columns))]
    for place, key_hash in zip(columns.key_records.tolist(), columns.key_hashes.tolist(), strict=True):
        keys[place].append(key_hash)
    fields = [getattr(columns, name).tolist() for name in ALL_COLUMNS if name not in ("key_records", "key_hashes")]
    topics = [columns.topics[number] for number in columns.topic_numbers.tolist()]
    return list(zip(topics, keys, *fields[1:], strict=True))


def varied_messages(count: int) -> list[object]:
    return [
        new_message(
            b"b" * (n % 700 + 1),
            topic=f"t{n % 5}",
            keys=[f"key-{n}", "Schl\u00fcssel"][: n % 3],
            tags="TagA" if n % 2 else "",
            unique_key=f"u{n}",
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("batch_bytes_max", [0, 1, 5_000])
def test_columns_say_what_requests_say_across_files_and_blanks(tmp_path: Path, batch_bytes_max: int) -> None:
    with open_log(tmp_path / "s") as log:
        for message in varied_messages(300):
            append(log, message, sync=False)
        append(log, new_message())
        as_requests = answers(log, batch_bytes_max=batch_bytes_max)
        as_columns = answers(log, batch_bytes_max=batch_bytes_max, columns=True)
        assert len(log._files.files) > 3

    assert not any(answer.requests for answer in as_columns)
    assert not any(answer.HasField("columns") for answer in as_requests)
    expected = [row for answer in as_requests for row in rows(columns_from_requests(answer.requests))]
    found = [row for answer in as_columns for row in rows(columns_from_proto(answer.columns))]
    assert len(expected) == 301
    assert found == expected


class Decodings:
    """Counts what is decoded, and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: list[int] = []
        decode = column_batches.walk_columns

        def counted(chunk: bytes, at: int, offset: int, count_max: int) -> object:
            self.offsets.append(offset)
            return decode(chunk, at, offset, count_max)

        monkeypatch.setattr(column_batches, "walk_columns", counted)


def test_followers_at_the_same_place_decode_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decodings = Decodings(monkeypatch)
    with open_log(tmp_path / "s", file_size_bytes=1 << 20) as log:
        append(log, *varied_messages(100))
        followers = [servicer(log).Reput(pb.ReputRequest(start_offset=-1, columns=True), None) for _ in range(2)]
        first = [next(follower).SerializeToString() for follower in followers]
        append(log, *varied_messages(50))
        second = [next(follower).columns for follower in followers]

    assert first[0] == first[1]
    assert second[0] == second[1]
    assert len(columns_from_proto(second[0])) == 50
    assert len(decodings.offsets) == 2


def test_who_comes_while_a_batch_is_decoded_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, is_decoding = threading.Event(), threading.Event()
    decode = column_batches.walk_columns
    calls = []

    def slowly(*arguments: object) -> object:
        calls.append(arguments)
        is_decoding.set()
        assert gate.wait(WAIT_SECONDS_MAX)
        return decode(*arguments)

    monkeypatch.setattr(column_batches, "walk_columns", slowly)
    with open_log(tmp_path / "s", file_size_bytes=1 << 20) as log:
        append(log, *varied_messages(100))
        batches = ColumnBatches(log._files)
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(len(batches.read(0, log.status.flushed_offset, 1 << 20)[0])))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        assert is_decoding.wait(WAIT_SECONDS_MAX)
        gate.set()
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)

    assert found == [100, 100, 100]
    assert len(calls) == 1


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_batches, "CACHE_BYTES_MAX", 10_000)
    with open_log(tmp_path / "s", file_size_bytes=1 << 20) as log:
        receipts = append(log, *varied_messages(200))
        batches = ColumnBatches(log._files)
        for receipt in receipts:
            batches.read(receipt.commit_log_offset, log.status.flushed_offset, 20_000)

            assert 0 < batches._cached_bytes <= 10_000
            sizes = [column_batches.size_bytes(kept.columns) for kept in batches._batches.values()]
            assert batches._cached_bytes == sum(sizes)
    assert len(sizes) > 1


def test_what_nobody_asked_for_again_goes_with_the_next_batch(tmp_path: Path) -> None:
    seconds = [0.0]
    with open_log(tmp_path / "s") as log:
        receipts = append(log, *varied_messages(30))
        batches = ColumnBatches(log._files, lambda: seconds[0])
        for number in (0, 10, 20):
            seconds[0] += CACHE_SECONDS / 2 + 0.1
            batches.read(receipts[number].commit_log_offset, log.status.flushed_offset, 1_000)

    assert [offset for offset, _ in batches._batches] == [receipts[n].commit_log_offset for n in (10, 20)]


def test_an_answer_is_small_however_many_keys_its_records_have(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4 << 20) as log:
        append(log, *[new_message(keys=[f"{n}" for n in range(4000)]) for _ in range(50)])
        found = answers(log, columns=True)

    assert max(answer.columns.ByteSize() for answer in found) < COLUMN_BYTES_MAX * 1.1 + 64_000  # first and last, whole
    assert sum(len(columns_from_proto(answer.columns)) for answer in found) == 50
    assert len(found) > 4


def log_of_light_queues(count: int) -> tuple[bytes, MappedFileQueue]:
    """Records that each name as many light queues as their properties hold; 33 bytes of an answer for 8 of the log."""
    names, positions = ",".join(["%LMQ%"] * 4000), ",".join(["1"] * 4000)
    properties = (
        f"TAGS\x01polygenelubricants\x02INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{positions}\x02"
    )
    data = b"".join(frames_of([message(properties=properties)] * count, base=0))
    return data, open_files(data)


def test_an_answer_is_small_however_many_light_queues_its_records_name(monkeypatch: pytest.MonkeyPatch) -> None:
    data, files = log_of_light_queues(40)
    read_bytes = []
    first = column_batches._Buffer.first
    monkeypatch.setattr(
        column_batches._Buffer, "first", lambda self, size: read_bytes.append(size) or first(self, size)
    )
    batches = ColumnBatches(files)
    offset, count = 0, 0
    while offset < len(data):
        columns, offset = batches.read(offset, len(data), 4 << 20)
        count += len(columns)
        assert len(columns) == 1 or columns_to_proto(columns).ByteSize() < COLUMN_BYTES_MAX * 1.1 + 200_000  # as above

    assert count == 40
    assert sum(read_bytes[1:]) < 4 * len(data)  # what did not fit is not decoded again and again


def test_requests_of_an_answer_are_few_when_they_name_many_light_queues() -> None:
    data, files = log_of_light_queues(40)
    requests, _ = read_batch(files, 0, len(data), 4 << 20)

    assert sum(dispatch_to_proto(request).ByteSize() for request in requests) < ANSWER_BYTES_MAX + 100_000


def test_a_damaged_record_is_told_behind_the_good_ones(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=1 << 20) as log:
        receipts = append(log, *varied_messages(20))
        damaged = receipts[10].commit_log_offset
        log._files.write(damaged + 4, b"\0\0\0\0")
        follower = servicer(log).Reput(pb.ReputRequest(start_offset=-1, columns=True), None)

        assert len(columns_from_proto(next(follower).columns)) == 10
        with pytest.raises(RecordCorruptedError) as caught:
            next(follower)

    assert caught.value.metadata["commitLogOffset"] == str(damaged)


def test_a_follower_whose_next_record_was_retired_is_told_even_if_it_is_remembered(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        for _ in range(40):
            append(log, new_message(b"x" * 1000))
        batches = ColumnBatches(log._files)
        batches.read(0, log.status.flushed_offset, 5_000)
        log._files.retire(40_000)

        with pytest.raises(OffsetOutOfRangeError) as caught:
            batches.read(0, log.status.flushed_offset, 5_000)

        assert caught.value.metadata["firstOffset"] == str(log.status.first_offset)
        assert log.status.first_offset > 0
