"""A replica that is far behind fetches whole files: they are equal, checked, and a kill at any step leaves a good store."""

import itertools
import queue
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_svc.replication.catching_up import STAGING_NAME, STATE_NAME, FileStaging, decode_fetched, encode_fetched
from commitlog_svc.replication.leader_side import FollowerStream, Pace
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import InvalidArgumentError, NotLeaderError, ResourceBusyError, StoreError
from store.files.file_system import RealFileSystem
from store.format.paths import log_file_name
from tests.commitlog_svc.replication.replicas import (
    BROKER,
    FILE_BYTES,
    Node,
    Shard,
    open_shard,
    wait_equal,
    wait_in_sync,
)
from tests.commitlog_svc.support import make_log, read_tree
from tests.support.waiting import wait_until

FILE_COUNT = 6
ASKED = tuple[int, int]


def filled(shard: Shard, **settings: Any) -> Node:
    """A lone leader with some files and a part of another one."""
    (leader,) = shard.start_all("r1", **settings)
    while leader.end_offset < FILE_COUNT * FILE_BYTES + FILE_BYTES // 3:
        leader.append(*(b"%d" % leader.end_offset * 120 for _ in range(10)), replicated=False)
    wait_until(lambda: leader.confirm_offset == leader.end_offset, "all is confirmed")
    return leader


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ASKED]:
    """What leaders were asked to send with FetchLog."""
    asked: list[ASKED] = []
    fetch = FollowerStream.fetch

    def noting(stream: FollowerStream, begin_offset: int, end_offset: int) -> Iterator[bytes]:
        asked.append((begin_offset, end_offset))
        return fetch(stream, begin_offset, end_offset)

    monkeypatch.setattr(FollowerStream, "fetch", noting)
    return asked


def staged(root: Path, epoch: int = 1) -> Path:
    directory = root / "reput" / "commitlog" / STAGING_NAME
    directory.mkdir(parents=True)
    (directory / STATE_NAME).write_text(f'{{"epoch":{epoch}}}')
    return directory


def test_a_new_replica_fetches_whole_files_and_goes_on_with_the_stream(tmp_path: Path, asked: list[ASKED]) -> None:
    with open_shard(tmp_path) as shard:
        leader = filled(shard)
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        leader.append(b"with both")
        wait_equal(leader, follower)
        assert leader.records() == follower.records()
        wait_until(lambda: not follower.status.HasField("catch_up"), "it has caught up")
        queues = leader.log.opened.appender.snapshot()[2]
        assert follower.log.opened.appender.snapshot()[2] == queues
    assert read_tree(tmp_path / "r1" / "commitlog") == read_tree(tmp_path / "r2" / "commitlog")
    assert sorted(asked) == [(number * FILE_BYTES, (number + 1) * FILE_BYTES) for number in range(FILE_COUNT)]
    assert [path.name for path in (tmp_path / "r2" / "reput" / "commitlog" / STAGING_NAME).iterdir()] == [STATE_NAME]


def test_a_replica_that_was_away_for_long_fetches_what_it_lacks(tmp_path: Path, asked: list[ASKED]) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.append(b"with both")
        follower.stop()
        wait_in_sync(leader, "r1")
        while leader.end_offset < FILE_COUNT * FILE_BYTES:
            leader.append(*(b"alone" * 100 for _ in range(10)), replicated=False)
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        wait_equal(leader, follower)
        assert leader.records() == follower.records()
    assert min(asked)[0] == FILE_BYTES, "the rest of its last file comes on the stream"


def test_progress_is_shown_and_the_limit_of_bytes_holds_for_all_fetches_together(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader = filled(shard, replication_bytes_per_second_max=FILE_BYTES)
        started = leader.leadership.now()
        follower = shard.start("r2")
        wait_until(lambda: follower.status.catch_up.fetched_bytes > FILE_BYTES, "more than a file has come")
        seconds = leader.leadership.now() - started
        progress = follower.status.catch_up
        assert progress.fetched_bytes <= FILE_BYTES * (seconds + 1), "three fetches share one limit"
        assert 0 < progress.bytes_per_second < 2 * FILE_BYTES
        assert (progress.begin_offset, progress.end_offset, progress.total_bytes) == (
            0,
            FILE_COUNT * FILE_BYTES,
            FILE_COUNT * FILE_BYTES,
        )
        assert [row.connected for row in leader.status.replicas if row.name == "r2"] == [True]


def test_the_limit_of_bytes_gives_each_its_time_one_behind_the_other() -> None:
    pace = Pace(100)
    assert [pace.take(50, 10.0), pace.take(100, 10.0), pace.take(10, 10.2)] == [10.0, 10.5, 11.5]
    assert pace.take(1, 99.0) == 99.0
    assert Pace(0).take(1 << 40, 1.0) == 1.0


def test_what_had_come_before_a_kill_is_not_fetched_again(tmp_path: Path, asked: list[ASKED]) -> None:
    with open_shard(tmp_path) as shard:
        leader = filled(shard)
        directory = staged(tmp_path / "r2")
        data = leader.records()
        (directory / log_file_name(0)).write_bytes(data[:5000])
        (directory / log_file_name(FILE_BYTES)).write_bytes(data[FILE_BYTES : 2 * FILE_BYTES])
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        wait_equal(leader, follower)
        assert leader.records() == follower.records()
    assert sorted(asked)[:2] == [(5000, FILE_BYTES), (2 * FILE_BYTES, 3 * FILE_BYTES)]


@pytest.mark.parametrize("size_bytes", [700, FILE_BYTES])
def test_what_had_come_and_is_damaged_is_fetched_anew(tmp_path: Path, asked: list[ASKED], size_bytes: int) -> None:
    """As a power cut leaves it: the length is there, the bytes are not."""
    with open_shard(tmp_path) as shard:
        leader = filled(shard)
        (staged(tmp_path / "r2") / log_file_name(FILE_BYTES)).write_bytes(bytes(size_bytes))
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        wait_equal(leader, follower)
        assert leader.records() == follower.records()
    assert (FILE_BYTES, 2 * FILE_BYTES) in asked


def test_files_of_another_leaders_log_are_thrown_away(tmp_path: Path) -> None:
    staging = FileStaging(RealFileSystem(), tmp_path)
    staging.begin(3, 0)
    for offset in (0, FILE_BYTES, 2 * FILE_BYTES):
        staging.path_of(offset).write_bytes(b"x")
    staging.keep(3, FILE_BYTES)
    assert [staging.path_of(offset).exists() for offset in (0, FILE_BYTES, 2 * FILE_BYTES)] == [False, True, True]
    staging.begin(4, 0)
    assert [path.name for path in staging.path_of(0).parent.iterdir()] == [STATE_NAME]


def test_a_damaged_file_of_the_leader_becomes_no_part_of_the_log(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader = filled(shard)
        with (tmp_path / "r1" / "commitlog" / log_file_name(FILE_BYTES)).open("r+b") as file:
            file.seek(FILE_BYTES // 2)
            file.write(b"damage")
        follower = shard.start("r2")
        wait_until(lambda: "no whole log file" in follower.status.problem, "it says what is wrong")
        assert follower.end_offset <= FILE_BYTES
        assert leader.status.in_sync == ["r1"]


class KilledAnywhere(RealFileSystem):
    """Copies the store before each step that other steps rely on: a kill leaves it so."""

    def __init__(self, root: Path, copies: Path) -> None:
        self._root = root
        self._copies = copies
        self._numbers = itertools.count()
        self._lock = threading.RLock()

    def _copy(self) -> None:
        if (self._root / "reput" / "commitlog" / STAGING_NAME).exists():
            shutil.copytree(self._root, self._copies / str(next(self._numbers)), copy_function=_copy_if_there)

    def rename(self, source: Any, target: Any) -> None:
        with self._lock:
            self._copy()
            super().rename(source, target)

    def fsync_dir(self, path: Any) -> None:
        with self._lock:
            self._copy()
            super().fsync_dir(path)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        with self._lock:
            super().pwrite(fd, data, position)


def _copy_if_there(source: str, target: str) -> str:
    """Other threads remove their temporary files meanwhile."""
    try:
        return str(shutil.copy2(source, target))
    except FileNotFoundError:
        return target


def test_a_kill_at_any_step_leaves_a_store_that_recovers_and_goes_on(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    with open_shard(tmp_path) as shard:
        leader = filled(shard)
        shard.start("r2", KilledAnywhere(tmp_path / "r2", copies))
        wait_in_sync(leader, "r1", "r2")
        data = leader.records()
        shard.nodes["r2"].stop()
        ends = []
        for copy in sorted(copies.iterdir(), key=lambda path: int(path.name)):
            log = make_log(copy, file_size_bytes=FILE_BYTES)
            log.recover()
            ends.append(log.status.end_offset)
            assert log._files.read(0, ends[-1]) == data[: ends[-1]]
            log.close()
        assert {number * FILE_BYTES for number in range(FILE_COUNT)} <= set(ends), "kills between any two files"
        shutil.rmtree(tmp_path / "r2")
        middle = max(number for number, end in enumerate(ends) if end <= 2 * FILE_BYTES)
        shutil.copytree(copies / str(middle), tmp_path / "r2")
        wait_in_sync(leader, "r1")
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        wait_equal(leader, follower)
        assert leader.records() == follower.records()


def test_only_what_the_stream_named_is_sent_and_not_too_much_at_the_same_time(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader = filled(shard)
        side = leader.replica._leading()
        ask = pb.FetchLogRequest(replica="r2", leader_epoch=1, offset=0, end_offset=FILE_BYTES)
        with pytest.raises(NotLeaderError, match="no stream"):
            next(side.fetch(ask))
        hello = pb.ReplicateRequest.Hello(replica="r2", broker_name=BROKER, leader_epoch=1, can_fetch=True)
        requests: queue.Queue[pb.ReplicateRequest | None] = queue.Queue()
        requests.put(pb.ReplicateRequest(hello=hello))
        responses = side.serve(iter(requests.get, None))
        next(responses)
        stream = side._streams["r2"]
        with pytest.raises(InvalidArgumentError):
            next(stream.fetch(0, FILE_BYTES))
        stream._fetch_end = 2 * FILE_BYTES
        with pytest.raises(InvalidArgumentError):
            next(stream.fetch(FILE_BYTES, 3 * FILE_BYTES))
        fetches = [stream.fetch(0, FILE_BYTES) for _ in range(9)]
        refused = []
        for fetch in fetches:
            try:
                next(fetch)
            except StoreError as error:
                refused.append(type(error))
        assert refused == [ResourceBusyError]
        fetches[0].close()
        assert next(stream.fetch(0, FILE_BYTES)), "one has ended"
        requests.put(None)


@given(data=st.binary(min_size=0, max_size=70_000))
def test_a_response_that_is_made_and_read_as_bytes_is_the_message(data: bytes) -> None:
    message = encode_fetched(data)
    assert pb.FetchLogResponse.FromString(message).data == data
    assert bytes(decode_fetched(message)) == data
    with_later_field = message + b"\x10\x01"
    assert bytes(decode_fetched(with_later_field)) == data
