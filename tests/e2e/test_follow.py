"""`reput serve --follow` beside a log that grows, is cut, and loses files: every query equals what the log holds."""

import json
import pathlib
import random
import shutil
import zlib
from collections.abc import Iterator

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from store.format.record import decode_record
from tests.commitlog_svc.beside.growing_log import FILE_SIZE_BYTES, GrowingLog, SourceLog, source_log
from tests.support.command import run_command
from tests.support.log_queries import check_queries, wait_until_shown
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life
GROUP, TOPIC = "followed", "b_order"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceLog:
    return source_log(tmp_path_factory.mktemp("fixture"))


@pytest.fixture
def log(tmp_path: pathlib.Path, source: SourceLog) -> GrowingLog:
    """The begin of the broker's log, with its `config`."""
    store = tmp_path / "store"
    shutil.copytree(source.root / "config", store / "config")
    log = GrowingLog(store)
    log.write(0, source.read(0, source.frames[300][0]))
    return log


@pytest.fixture
def stack(log: GrowingLog, tmp_path: pathlib.Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "store", "--follow", "--derived", str(tmp_path / "derived")) as stack:
        yield stack


def grow(log: GrowingLog, source: SourceLog, begin: int, end: int) -> None:
    """Write the records `[begin, end)` of the source, each in pieces in any order."""
    dice = random.Random(begin)
    for offset, frame in source.frames[begin:end]:
        pieces = list(range(0, len(frame), 700))
        dice.shuffle(pieces)
        for at in pieces:
            log.write(offset + at, frame[at : at + 700])
    for first, data in source.files.items():  # the blanks
        if log.path_of(first).exists() and source.frames[end - 1][0] >= first + len(data):
            log.write(first, data)


def listing(root: pathlib.Path) -> dict[str, tuple[int, int, int]]:
    """Size, inode and time of change of everything below a directory."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
    }


def test_queries_equal_the_log_while_it_grows_and_after_a_restart(
    log: GrowingLog, source: SourceLog, tmp_path: pathlib.Path
) -> None:
    store, derived = tmp_path / "store", tmp_path / "derived"
    flags = ("--follow", "--derived", str(derived))
    with running_stack(store, *flags) as stack:
        before = listing(store)
        wait_until_shown(stack, source.frames[300][0])
        check_queries(stack, source.frames[:300])
        assert listing(store) == before, "nothing but the broker writes there"
        grow(log, source, 300, 1500)
        wait_until_shown(stack, source.frames[1500][0])
        check_queries(stack, source.frames[:1500])
        refused = run_command("send", TOPIC, "--body", "x", "--address", stack.addresses["gateway"])
        assert refused.returncode != 0
    grow(log, source, 1500, len(source.frames))
    before = listing(store)
    with running_stack(store, *flags) as stack:
        wait_until_shown(stack, max(source.ends))
        check_queries(stack, source.frames)
        assert f'"walked_from_offset": {source.frames[1500][0]}' in stack.log(), "it goes on where it was"
    assert listing(store) == before
    assert {path.name for path in derived.iterdir()} == {"consumequeue", "index", "reput"}


def test_tracks_and_pulls_go_by_the_brokers_positions(stack: Stack, log: GrowingLog, source: SourceLog) -> None:
    path = log.directory.parent / "config" / "consumerOffset.json"
    frames = [decode_record(frame, commit_log_offset=at) for at, frame in source.frames[:300]]
    queue = sorted((one for one in frames if (one.topic, one.queue_id) == (TOPIC, 0)), key=lambda one: one.queue_offset)
    pulled = next(
        stack.gateway.PullMessages(
            pb.PullMessagesRequest(topic=TOPIC, queue_offset=0, max_messages=32), timeout=WAIT_SECONDS_MAX
        )
    )
    assert [message.body for message in pulled.messages] == [one.body for one in queue][: len(pulled.messages)] != []

    def state_of(offset: int) -> int:
        key = queue[offset].properties["UNIQ_KEY"]
        answer = stack.gateway.TrackMessage(
            pb.TrackMessageRequest(topic=TOPIC, unique_key=key), timeout=WAIT_SECONDS_MAX
        )
        return next((track.state for track in answer.tracks if track.consumer_group == GROUP), -1)

    for offset in (3, 7):
        path.write_text('{"offsetTable":{')  # half written: the state stays
        path.write_text(json.dumps({"offsetTable": {f"{TOPIC}@{GROUP}": {"0": offset}}}))
        wait_until(lambda at=offset - 1: state_of(at) == pb.TRACK_STATE_CONSUMED, f"{offset - 1} is consumed")
        assert state_of(offset) == pb.TRACK_STATE_NOT_CONSUMED


def test_files_that_the_broker_removed_are_gone_from_queries(stack: Stack, log: GrowingLog, source: SourceLog) -> None:
    grow(log, source, 300, len(source.frames))
    wait_until_shown(stack, max(source.ends))
    log.path_of(0).unlink()

    def status() -> pb.GetStatusResponse.ServiceStatus:
        return stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services[0]

    wait_until(lambda: status().log_first_offset == FILE_SIZE_BYTES, "the log begins later")
    assert "log.removed_by_owner" in stack.log()
    assert (status().state, status().followed_lag_bytes) == ("following", 0)
    assert status().HasField("followed_lag_bytes")
    check_queries(stack, [one for one in source.frames if one[0] >= FILE_SIZE_BYTES])


def test_a_log_that_the_broker_cut_is_read_again(stack: Stack, log: GrowingLog, source: SourceLog) -> None:
    """The last three records went, and one with another body was written in their place."""
    wait_until_shown(stack, source.frames[300][0])
    cut, frame = source.frames[297]
    record = decode_record(frame, commit_log_offset=cut)
    assert record.body
    body = bytes(byte ^ 1 for byte in record.body)
    other = frame.replace(record.body, body, 1)
    other = other[:8] + (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big") + other[12:]
    log.write(cut, other + bytes(source.frames[300][0] - cut - len(frame)))
    wait_until(lambda: "log.changed_by_owner" in stack.log(), "the cut is noticed")
    end = cut + len(frame)
    wait_until_shown(stack, end)
    check_queries(stack, [*source.frames[:297], (cut, other)])
    found = stack.gateway.QueryMessageByOffset(
        pb.QueryMessageByOffsetRequest(
            topic=record.topic, queue_id=record.queue_id, queue_offset=record.queue_offset, page_size=9
        ),
        timeout=WAIT_SECONDS_MAX,
    )
    assert [message.body for message in found.messages] == [body], "and what was cut is gone"
    assert stack.process.poll() is None
