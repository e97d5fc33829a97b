"""Records by three ways, from the log's own files, by lookup, and over gRPC: the same outcome for every offset."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.calling.commitlog import FILE_READ_BYTES_MAX, CommitLogClient
from services.convert import stored_message
from services.local import log_files, messages_kernel
from services.local.encoded_records import RecordEncoder
from services.local.log_files import LogFiles
from services.local.server import over_bytes, serve_local
from services.local.wire import APPENDS, LOOKUPS, LocalMethod
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import (
    DeadlineExceededError,
    OffsetOutOfRangeError,
    RecordCorruptedError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreError,
)
from store.format.record import decode_record, patch_record
from store.walk.record_reader import FIRST_READ_BYTES
from tests.commitlog_svc.support import append, make_log, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

FILE_BYTES = 16_384
WAYS = ("files", "lookup", "grpc")
BROKER = "broker-b"


class Served:
    """A log served at a unix address; `asked` counts what its service was asked, by name."""

    def __init__(self, root: Path, address: str, way: str, **settings: Any) -> None:
        self.log: CommitLog = make_log(root, **({"file_size_bytes": FILE_BYTES} | settings))
        self.log.recover()
        self.asked: list[str] = []
        servicer = CommitLogServicer(self.log, BROKER, "127.0.0.1:10911")
        self.server = ServiceServer("commitlog", ServiceSettings(address=address))
        add = pb_grpc.add_CommitLogServiceServicer_to_server
        self.server.add("reput.commitlog.v1.CommitLogService", add, servicer)
        handlers = {
            LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, self._counted("get", servicer.GetMessage)),
            LocalMethod.BATCH_GET_MESSAGES: over_bytes(
                pb.BatchGetMessagesRequest, self._counted("batch", servicer.BatchGetMessages)
            ),
            LocalMethod.OPEN_LOG_FILE: over_bytes(pb.GetMessageRequest, self._counted("open", servicer.open_log_file)),
        }
        if way == "lookup":
            del handlers[LocalMethod.OPEN_LOG_FILE]
        if way != "grpc":
            assert serve_local(LOOKUPS, address, handlers, self.server)
            assert serve_local(APPENDS, address, servicer.local_appends(), self.server)
        self.server.start()
        self._ended = threading.Thread(target=self.server.serve_until_stopped)
        self._ended.start()

    def _counted(self, name: str, handler: Any) -> Any:
        def handle(request: Any, context: Any) -> Any:
            self.asked.append(name)
            return handler(request, context)

        return handle

    def close(self) -> None:
        self.server.stop()
        self._ended.join()
        self.log.close()


@contextlib.contextmanager
def served(root: Path, address: str, way: str = "files", **settings: Any) -> Iterator[Served]:
    served = Served(root, address, way, **settings)
    try:
        yield served
    finally:
        served.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s.sock"


def fill(log: CommitLog) -> list[int]:
    """Records of many kinds over several files; their offsets. One body holds a record, another is larger than a read."""
    inner = append(log, new_message(b"inner"))[0]
    frame = log._files.read(inner.commit_log_offset, inner.store_size_bytes)
    bodies = [b"y", b"x", frame, frame * 3, b"\0" * 2000, os.urandom(9000), *(b"%d" % n * 40 for n in range(150))]
    receipts = [
        append(log, new_message(body, keys=[f"k{number}", "all"], tags="T", properties={"名": "值"}), sync=False)[0]
        for number, body in enumerate(bodies)
    ]
    append(log, new_message(b"last"))
    return [inner.commit_log_offset, *(receipt.commit_log_offset for receipt in receipts)]


def expected_at(log: CommitLog, offset: int) -> Any:
    """What the plain codec reads from the files."""
    data = log._files.read(offset, 4)
    frame = log._files.read(offset, int.from_bytes(data, "big"))
    return stored_message(decode_record(frame, commit_log_offset=offset), BROKER)


def outcome(client: CommitLogClient, offset: int) -> Any:
    try:
        return client.get(offset)
    except StoreError as error:
        return type(error), error.message, error.metadata


@pytest.mark.parametrize("way", WAYS)
def test_each_record_is_the_one_in_the_log(tmp_path, address, way):
    with served(tmp_path / "s", address, way) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)

        file_count = it.log.status.file_count
        assert file_count > 3
        assert [client.get(offset) for offset in offsets] == [expected_at(it.log, offset) for offset in offsets]
        assert client.get_many(offsets) == [expected_at(it.log, offset) for offset in offsets]

    if way == "files":
        assert set(it.asked) == {"open"}
        assert len(it.asked) <= file_count
    else:
        assert "open" not in it.asked


def test_every_other_offset_has_the_same_outcome_by_each_way(tmp_path, address):
    root = tmp_path / "s"
    with served(root, address, "grpc") as it:
        starts = fill(it.log)
        end = it.log.status.end_offset
        strange = [-1, -(1 << 63), 1, 4, starts[3] + 91, starts[5] + 1, FILE_BYTES - 1, FILE_BYTES - 8, end - 1]
        strange += [end, end + 1, end + FILE_BYTES, (1 << 63) - 1]
        # Where a body holds a whole record.
        body_at = it.log._files.read(starts[3], 4096).find(b"inner") - 88
        strange += [starts[3] + body_at + shift for shift in range(-4, 5)]
    outcomes = {}
    for way in WAYS:
        with served(root, address, way):
            client = CommitLogClient(address)
            client.get(starts[0])
            outcomes[way] = [outcome(client, offset) for offset in strange]
            assert {row[0] for row in outcomes[way]} == {OffsetOutOfRangeError, RecordNotFoundError}
            many = client.get_many([starts[1], *strange[1:5], starts[2]])
            assert [type(one) for one in many[1:5]] == [row[0] for row in outcomes[way][1:5]]

    assert outcomes["files"] == outcomes["lookup"] == outcomes["grpc"]


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_record_is_named_with_its_file(tmp_path, address, way):
    with served(tmp_path / "s", address, way) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        client.get(offsets[0])
        victim = offsets[-3]
        file = it.log._files.find(victim)
        with open(file.path, "r+b") as damaged:
            damaged.seek(victim - file.first_offset + 95)
            damaged.write(b"\xff")

        with pytest.raises(RecordCorruptedError) as raised:
            client.get(victim)
        found = client.get_many([offsets[0], victim, offsets[1]])

    assert raised.value.metadata["file"] == str(file.path)
    assert [type(one).__name__ for one in found] == ["StoredMessage", "RecordCorruptedError", "StoredMessage"]


@pytest.mark.parametrize("omit_bodies", [False, True])
@pytest.mark.parametrize("body_bytes_max", [0, 1, 100, 9_000, 9_100, 20_000])
def test_bodies_are_left_out_as_by_the_service(tmp_path, address, body_bytes_max, omit_bodies):
    answers: list[Any] = []
    offsets: list[int] = []
    root = tmp_path / "s"
    for way in WAYS:
        with served(root, address, way) as it:
            offsets = offsets or fill(it.log)
            client = CommitLogClient(address)
            answers.append(client.get_many(offsets, body_bytes_max=body_bytes_max, omit_bodies=omit_bodies))

    assert answers[0] == answers[1] == answers[2]


def test_much_at_once_is_cut_by_the_service(tmp_path, address):
    with served(tmp_path / "s", address, file_size_bytes=8 << 20) as it:
        offsets = [append(it.log, new_message(b"b" * 300_000))[0].commit_log_offset for _ in range(5)]
        client = CommitLogClient(address)
        assert 5 * 300_000 > FILE_READ_BYTES_MAX
        found = client.get_many(offsets)

    assert [len(message.body) for message in found] == [300_000] * 5
    assert it.asked.count("batch") == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_record_is_found_as_soon_as_it_is_acknowledged(tmp_path, address, way):
    with served(tmp_path / "s", address, way, flush_interval_millis=60_000) as it:
        client = CommitLogClient(address)
        for number in range(200):
            receipt = append(it.log, new_message(b"%d" % number), sync=False)[0]
            assert client.get(receipt.commit_log_offset).body == b"%d" % number
        again = [client.get_many([receipt.commit_log_offset])[0].body for _ in range(3)]

    assert again == [b"199"] * 3
    if way == "files":
        assert it.asked.count("batch") == 0  # what it answered once proves how far the log goes


def test_who_appends_reads_what_was_written_before_without_asking(tmp_path, address):
    """As the schedule service: it appends verdicts, and reads half messages of the moment before."""
    with served(tmp_path / "s", address, flush_interval_millis=60_000) as it:
        client = CommitLogClient(address)
        first = append(it.log, new_message(b"first"))[0]
        assert client.get(first.commit_log_offset).body == b"first"
        it.asked.clear()
        for number in range(5):
            receipt = append(it.log, new_message(b"%d" % number), sync=False)[0]
            mine = pb.InternalRecord(topic="T", body=b"mine")
            (result,) = client.append_internal([mine], flush=message_pb2.FLUSH_MODE_ASYNC)
            found = client.get_many([receipt.commit_log_offset, result.commit_log_offset])
            assert [message.body for message in found] == [b"%d" % number, b"mine"]

    assert it.asked == []


@pytest.mark.parametrize("way", WAYS)
def test_what_lies_behind_the_end_is_no_record(tmp_path, address, way):
    with served(tmp_path / "s", address, way) as it:
        receipt = append(it.log, new_message(b"first"))[0]
        frame = bytearray(it.log._files.read(0, receipt.store_size_bytes))
        client = CommitLogClient(address)
        client.get(0)
        end = it.log.status.end_offset
        patch_record(frame, 1, end, decode_record(bytes(frame)).store_time_millis)
        assert decode_record(bytes(frame), commit_log_offset=end).body == b"first"
        it.log._files.files[0].write(end, frame)

        with pytest.raises(OffsetOutOfRangeError):
            client.get(end)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_retention_removes_is_gone_for_who_has_it_open(tmp_path, address, way):
    with served(tmp_path / "s", address, way) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        assert client.get(offsets[0]).body == b"inner"
        it.log._files.retire(FILE_BYTES, 1)
        first = it.log.status.first_offset
        assert first == FILE_BYTES

        with pytest.raises(OffsetOutOfRangeError) as raised:
            client.get(offsets[0])
        found = client.get_many([offsets[-1], offsets[0]])

    assert int(raised.value.metadata["firstOffset"]) == first
    assert type(found[1]) is OffsetOutOfRangeError


def test_a_removed_file_gives_its_room_back_when_the_next_one_is_opened(tmp_path, address):
    with served(tmp_path / "s", address) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        client._files = files = LogFiles(client.socket(LOOKUPS))
        client._encoder = RecordEncoder(client._files)
        client.get(offsets[0])
        assert list(files._link.files) == [0]
        it.log._files.retire(FILE_BYTES, 1)
        client.get(offsets[-1])
        held = list(files._link.files)

    assert len(held) == 1
    assert held[0] > 0


def test_without_time_a_record_comes_from_a_file_at_hand_and_nobody_is_asked(tmp_path, address):
    with served(tmp_path / "s", address) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        with pytest.raises(DeadlineExceededError):
            client.get(offsets[0], timeout_seconds=0.0)
        assert it.asked == []
        require_answers_about_memory(tmp_path)
        expected = client.get(offsets[0])
        asked = list(it.asked)
        assert client.get(offsets[0], timeout_seconds=0.0) == expected
        for elsewhere in (offsets[-1], offsets[0] + 1, it.log.status.end_offset):
            with pytest.raises(DeadlineExceededError):
                client.get(elsewhere, timeout_seconds=0.0)
        assert it.asked == asked


def require_answers_about_memory(folder: Path) -> None:
    """Skips the test where the file system cannot tell what of a file is in memory."""
    path = folder / "probe"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            pytest.skip("this file system cannot tell")


def test_a_record_on_the_disk_held_up_all_calls_of_a_gateway_that_tried_to_answer_at_once(
    tmp_path, address, monkeypatch
):
    """An attempt runs in the thread that polls: what a slow or hanging disk has is for a thread of the call's own."""
    with served(tmp_path / "s", address) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        expected = client.get(offsets[0])
        whole = os.preadv

        def on_disk(fd, buffers, offset, flags=0):
            assert flags & os.RWF_NOWAIT
            raise BlockingIOError

        def half_in_memory(fd, buffers, offset, flags=0):
            assert flags & os.RWF_NOWAIT
            return whole(fd, buffers, offset) - 1

        for held in (on_disk, half_in_memory):
            monkeypatch.setattr(os, "preadv", held)
            with pytest.raises(DeadlineExceededError):
                client.get(offsets[0], timeout_seconds=0.0)
            assert client.get(offsets[0]) == expected
        monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, flags=0: whole(fd, buffers, offset))
        assert client.get(offsets[0], timeout_seconds=0.0) == expected
        large = next(offset for offset in offsets if client.get(offset).store_size_bytes > FIRST_READ_BYTES)
        asked = list(it.asked)
        with pytest.raises(DeadlineExceededError):
            client.get(large, timeout_seconds=0.0)
        assert it.asked == asked


def test_the_kernel_reads_as_much_of_a_record_first_as_is_at_hand():
    assert messages_kernel.FIRST_READ_BYTES == FIRST_READ_BYTES


def test_a_service_that_has_gone_answers_nothing_and_its_successor_for_its_own_log(tmp_path, address):
    client = CommitLogClient(address)
    with served(tmp_path / "a", address) as it:
        append(it.log, new_message(b"of a"), new_message(b"more of a"))
        assert client.get(0).body == b"of a"
        assert it.asked == ["open"]

    with pytest.raises(ServiceUnavailableError):
        client.get(0, timeout_seconds=0.3)

    with served(tmp_path / "b", address) as other:
        append(other.log, new_message(b"of b"))
        # After a failure a channel pauses before it connects again, and refuses calls meanwhile.
        grpc.channel_ready_future(client.channel).result(WAIT_SECONDS_MAX)
        bodies = {client.get(0).body for _ in range(3)}
        with pytest.raises(OffsetOutOfRangeError):
            client.get(other.log.status.end_offset)

    assert bodies == {b"of b"}


def test_no_more_files_stay_open_than_are_allowed_and_only_for_reading(tmp_path, address, monkeypatch):
    with served(tmp_path / "s", address) as it:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        client._files = files = LogFiles(client.socket(LOOKUPS), file_count_max=2)
        client._encoder = RecordEncoder(client._files)
        for _ in range(2):
            for offset in offsets:
                client.get(offset)
        file_count = it.log.status.file_count
        held = list(files._link.files.values())
        modes = [fcntl.fcntl(descriptor.fd, fcntl.F_GETFL) & os.O_ACCMODE for descriptor in held]

    assert file_count > 3
    assert modes == [os.O_RDONLY] * 2
    assert "get" not in it.asked


def test_a_service_that_hangs_while_it_hands_a_file_over_is_asked_the_other_way(tmp_path, address, monkeypatch):
    monkeypatch.setattr(log_files, "OPEN_SECONDS_MAX", 0.05)
    leave = threading.Event()
    with served(tmp_path / "s", address, "lookup") as it:
        append(it.log, new_message(b"there"))
        path = address.removeprefix("unix:")
        Path(path + ".lookups").unlink()

        def hang(request: Any, context: Any) -> Any:
            assert leave.wait(WAIT_SECONDS_MAX)
            raise StoreError("late")

        get = CommitLogServicer(it.log, BROKER, "127.0.0.1:10911").GetMessage
        handlers = {
            LocalMethod.OPEN_LOG_FILE: over_bytes(pb.GetMessageRequest, hang),
            LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, get),
        }
        assert serve_local(LOOKUPS, address, handlers, it.server)
        body = CommitLogClient(address).get(0).body
        leave.set()

    assert body == b"there"


def test_many_threads_read_while_the_log_grows_and_its_front_goes(tmp_path, address):
    with served(tmp_path / "s", address) as it, ThreadPoolExecutor(8) as pool:
        offsets = fill(it.log)
        client = CommitLogClient(address)
        client._files = LogFiles(client.socket(LOOKUPS), file_count_max=2)
        client._encoder = RecordEncoder(client._files)
        expected = {offset: expected_at(it.log, offset) for offset in offsets}
        running = [pool.submit(outcome, client, offset) for _ in range(20) for offset in offsets]
        fill(it.log)
        it.log._files.retire(FILE_BYTES * 2)
        asked = [offset for _ in range(20) for offset in offsets]
        for offset, future in zip(asked, running, strict=True):
            found = future.result(60)
            if isinstance(found, tuple):
                assert found[0] is OffsetOutOfRangeError
                assert offset < FILE_BYTES * 2
            else:
                assert found == expected[offset]


def test_the_files_tell_where_the_log_ends_without_a_call(tmp_path: Path, address: str) -> None:
    """At every end of a request, over several files; what the files cannot tell is left to the service."""
    with served(tmp_path, address) as running:
        client = CommitLogClient(address)
        try:
            end = first = append(running.log, new_message(b"first"))[0].commit_log_offset
            files = client._files
            known, asked = 0, []
            for number in range(120):
                receipt = append(running.log, new_message(b"%d" % number * 60), sync=False)[0]
                assert files.is_written_at(end) in (True, None), "written since"
                end = receipt.commit_log_offset + receipt.store_size_bytes
                files.open_end(end, 10)
                written = files.is_written_at(end)
                assert written in (False, None), f"nothing is written behind {end}"
                known += written is False
                asked.append(len(running.asked))
            assert known > 110, "all but some ends of files"
            assert asked[-1] <= 3 * (end // FILE_BYTES + 1), "a call for each file, not for each question"
            assert files.is_written_at(first) is True
        finally:
            client.close()
        assert client._files.is_written_at(end) is None, "closed"


def test_a_query_opened_files_before_it_knew_whether_anything_was_written(tmp_path: Path, address: str) -> None:
    """It may take a second for each shard. The call that asks for the end, beside the query, has the file opened."""
    with served(tmp_path, address) as running:
        client = CommitLogClient(address)
        try:
            receipt = append(running.log, new_message(b"first"))[0]
            end = receipt.commit_log_offset + receipt.store_size_bytes
            assert (client.is_written_at(end), running.asked) == (None, [])

            assert client.readable_offset() == end

            asked = list(running.asked)
            assert (client.is_written_at(end), running.asked) == (False, asked)
        finally:
            client.close()
