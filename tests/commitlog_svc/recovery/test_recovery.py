"""Restarts: clean, after a kill, with a torn tail, with damage, on stores that RocketMQ wrote, read-only, and two at once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_svc import lookup
from store.errors import StoreCorruptedError, StoreLockedError, StoreReadOnlyError, UnsupportedStoreError
from store.format.checkpoint import DURABLE_MARK, decode_checkpoint
from store.format.topic import decode_topic_table
from tests.commitlog_svc.support import append, make_log, new_message, open_log, read_tree
from tests.support.crashing import copy_open_store
from tests.support.fixture_stores import walk_frames

pytestmark = pytest.mark.usefixtures("kernel_mode")  # the log is walked with the kernel and without

WRITER = """
import sys
from pathlib import Path
from tests.commitlog_svc.support import append, make_log, new_message
log = make_log(Path(sys.argv[1]), flush_interval_millis=60_000)
log.recover()
number = 0
while True:
    receipt = append(log, new_message(b"%d" % number * 20, queue_id=number % 3))[0]
    print(receipt.commit_log_offset, number, receipt.queue_id, receipt.queue_offset, flush=True)
    number += 1
"""


def kill_a_writer(root: Path, acknowledged_count: int) -> list[list[int]]:
    """Runs a process that appends with sync flush, kills it, and returns what it had acknowledged."""
    repository = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{repository}{os.pathsep}{repository / 'protos'}"}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, env=environment, text=True
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(acknowledged_count)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.read().splitlines()
    return [[int(word) for word in line.split()] for line in lines if len(line.split()) == 4]


def crash(root: Path, target: Path) -> Path:
    """What a kill would have left of an open log: a copy of its files as they are now."""
    copy_open_store(root, target)
    return target


def first_file(root: Path) -> Path:
    return root / "commitlog" / ("0" * 20)


def test_a_clean_restart_goes_on_without_a_walk(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_log(root) as log:
        append(log, *[new_message(b"%d" % i, queue_id=1) for i in range(100)])
        end_offset = log.status.end_offset
    assert not (root / "abort").exists()

    with open_log(root) as log:
        assert (end_offset, 0) == (log.opened.found.end_offset, log.opened.found.record_count)
        assert 100 == append(log, new_message(queue_id=1))[0].queue_offset


def test_a_lost_snapshot_means_a_walk_to_the_same_place(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_log(root) as log:
        append(log, *[new_message(b"%d" % i, queue_id=i % 2) for i in range(100)])
        end_offset = log.status.end_offset
    (root / "reput" / "commitlog" / "snapshot.json").write_text("{")

    with open_log(root) as log:
        assert (end_offset, 100) == (log.opened.found.end_offset, log.opened.found.record_count)
        assert 50 == append(log, new_message(queue_id=1))[0].queue_offset


@pytest.mark.parametrize("end", ["clean", "killed", "of another program"])
def test_a_start_knows_record_starts_near_the_end_of_the_log(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "TAIL_STEP_BYTES", 1000)
    root = tmp_path / "s"
    with open_log(root) as log:
        for _ in range(150):
            append(log, new_message(bytes(100)))
        if end == "killed":
            log._safe_points.write()
            append(log, *[new_message(bytes(100)) for _ in range(20)])
            crashed = crash(root, tmp_path / "crashed")
    if end == "killed":
        root = crashed
    elif end == "of another program":
        (root / "reput" / "commitlog" / "snapshot.json").unlink()

    with open_log(root) as log:
        found = log.opened.found
        starts = [*(offset for offset, _ in walk_frames(root)), found.end_offset]
        assert set(starts) >= set(found.tail_starts.offsets)
        assert len(found.tail_starts.offsets) >= 3
        assert (
            found.end_offset - 16_384 < found.tail_starts.offsets[-1]
        )  # a walk with the kernel notes one for each piece


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    root = tmp_path / "s"
    for _ in range(3):
        shutil.rmtree(root, ignore_errors=True)
        acknowledged = kill_a_writer(root, 150)

        with open_log(root) as log:
            for offset, number, queue_id, queue_offset in acknowledged:
                record = log.opened.reads.get(offset)
                expected = (b"%d" % number * 20, queue_id, queue_offset)
                assert expected == (record.body, record.queue_id, record.queue_offset)
            next_number = len(list(walk_frames(root)))
            queue_offset = append(log, new_message(queue_id=0))[0].queue_offset
            assert (next_number + 2) // 3 == queue_offset


def test_a_tail_torn_at_any_byte_is_cut_and_zeroed(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with open_log(live) as log:
        kept = append(log, new_message(b"kept", queue_id=0))[0]
        torn = append(log, new_message(b"torn body", tags="T", queue_id=0))[0]
        begin, end = torn.commit_log_offset, torn.commit_log_offset + torn.store_size_bytes
        crashed = crash(live, tmp_path / "crashed")
    shutil.rmtree(crashed / "reput")
    whole = first_file(crashed).read_bytes()
    for cut in range(begin, end):
        noise = b"\xff" if cut % 2 else b"\0"
        first_file(crashed).write_bytes((whole[:cut] + noise * (end - cut)).ljust(len(whole), b"\0"))
        (crashed / "abort").write_text("1")
        shutil.rmtree(crashed / "reput", ignore_errors=True)

        with open_log(crashed) as log:
            # A last byte that only looks torn because it is what the noise would have been is no tear.
            is_whole = whole[cut:end] == noise * (end - cut)
            assert (end if is_whole else begin) == log.opened.found.end_offset, cut
            assert b"kept" == log.opened.reads.get(kept.commit_log_offset).body
            if not is_whole:
                assert 1 == append(log, new_message(queue_id=0))[0].queue_offset
        if not is_whole:
            assert not first_file(crashed).read_bytes()[log.status.end_offset :].strip(b"\0")


def test_a_torn_record_without_a_crc_of_its_own_is_seen_too(tmp_path: Path) -> None:
    """RocketMQ accepts such a record: only the body has a CRC (issue #7437)."""
    live = tmp_path / "live"
    with open_log(live, properties_crc=False) as log:
        append(log, new_message(b"kept"))
        torn = append(log, new_message(b"torn", tags="TagTagTag"))[0]
        crashed = crash(live, tmp_path / "crashed")
    shutil.rmtree(crashed / "reput")
    data = bytearray(first_file(crashed).read_bytes())
    end = torn.commit_log_offset + torn.store_size_bytes
    data[end - 20 : end] = bytes(20)
    first_file(crashed).write_bytes(data)

    with open_log(crashed, properties_crc=False) as log:
        assert torn.commit_log_offset == log.opened.found.end_offset


def test_damage_before_good_records_stops_the_store_and_names_the_byte(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_log(root) as log:
        receipts = append(log, *[new_message(b"%03d" % i) for i in range(30)])
    (root / "reput" / "commitlog" / "snapshot.json").unlink()
    damaged = receipts[7].commit_log_offset
    data = bytearray(first_file(root).read_bytes())
    data[damaged + 90] ^= 4
    first_file(root).write_bytes(data)
    before = read_tree(root / "commitlog")

    for read_only in (False, True):
        (root / "abort").write_text("1")  # a read-only look at a cleanly stopped store may skip old files
        with pytest.raises(StoreCorruptedError) as refused:
            make_log(root, read_only=read_only).recover()
        assert str(damaged) == refused.value.metadata["offset"]
        assert str(first_file(root)) == refused.value.metadata["file"]
    assert before == read_tree(root / "commitlog")


def test_pages_that_a_power_cut_kept_behind_lost_ones_are_a_torn_tail(tmp_path: Path) -> None:
    """Behind the durable mark of an unclean stop nothing was acknowledged as durable."""
    live = tmp_path / "live"
    with open_log(live, flush_interval_millis=60_000) as log:
        kept = append(log, new_message(b"kept"))[0]
        lost = append(log, new_message(b"lost"), sync=False)[0]
        append(log, new_message(b"page that made it"), sync=False)
        crashed = crash(live, tmp_path / "crashed")
    with first_file(crashed).open("r+b") as file:
        file.seek(lost.commit_log_offset)
        file.write(bytes(lost.store_size_bytes))

    with open_log(crashed) as log:
        assert lost.commit_log_offset == log.opened.found.end_offset
        assert b"kept" == log.opened.reads.get(kept.commit_log_offset).body


def test_a_log_shorter_than_its_durable_mark_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_log(root) as log:
        append(log, new_message())
        last = append(log, new_message(b"last"))[0]
    (root / "reput" / "commitlog" / "snapshot.json").unlink()
    with first_file(root).open("r+b") as file:
        file.seek(last.commit_log_offset)
        file.write(bytes(last.store_size_bytes))

    assert last.commit_log_offset < DURABLE_MARK.unpack((root / "reput" / "commitlog" / "durable").read_bytes())[0]
    with pytest.raises(StoreCorruptedError):
        make_log(root).recover()


def test_two_processes_never_share_a_store(tmp_path: Path) -> None:
    with open_log(tmp_path / "s"):
        second = make_log(tmp_path / "s")
        second.root._owner_lock._wait_seconds = 0
        with pytest.raises(StoreLockedError):
            second.recover()
    with open_log(tmp_path / "s") as log:
        append(log, new_message())


@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc"])
def test_a_store_of_a_real_broker_is_opened_and_appended_to(name: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(f"copy_of_{name}_store")
    frames = dict(walk_frames(root))
    ends: dict[tuple[str, int], int] = {}
    size_before = first_file(root).stat().st_size

    with open_log(root, file_size_bytes=1 << 30) as log:
        assert size_before == log.status.file_size_bytes
        assert len(frames) == log.opened.found.record_count
        for offset, frame in frames.items():
            record = log.opened.reads.get(offset)
            assert len(frame) == record.store_size_bytes
            if record.sys_flag & 0xC not in (4, 12):
                ends[record.topic, record.queue_id] = record.queue_offset + 1
        assert max(offset + len(frame) for offset, frame in frames.items()) == log.status.end_offset
        before = {path: path.read_bytes() for path in (root / "commitlog").iterdir()}
        end_offset = log.status.end_offset
        topic = "b_order" if name == "broker" else "extra_a"
        receipt = append(log, new_message(topic=topic, queue_id=1))[0]
        assert ends[topic, 1] == receipt.queue_offset
        assert end_offset == receipt.commit_log_offset

    for path, data in before.items():
        known = max(0, min(len(data), end_offset - int(path.name)))
        assert data[:known] == path.read_bytes()[:known]


def test_a_brokers_topics_keep_their_queues_and_others(copy_of_broker_store: Path) -> None:
    with open_log(copy_of_broker_store) as log:
        assert 4 == log.topics.writable_queue_count("b_order")
        before = {config.topic: config for config in log.topics.all()}
        append(log, new_message(topic="fresh"))

    after = decode_topic_table((copy_of_broker_store / "config" / "topics.json").read_bytes())
    assert 8 == after.pop("fresh").write_queue_count
    assert before == after


def test_a_crashed_broker_store_is_opened(copy_of_crashed_store: Path) -> None:
    with open_log(copy_of_crashed_store) as log:
        assert log.root.was_aborted
        assert log.opened.found.cut_offset is None
        append(log, new_message(topic="b_order"))


def test_the_checkpoint_is_rocketmqs_and_never_ahead(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_log(root) as log:
        last = append(log, new_message())[0]
        log.followers.report("consumequeue", log.status.flushed_offset, 123, log.status.flushed_offset)

    data = (root / "checkpoint").read_bytes()
    checkpoint = decode_checkpoint(data)
    assert 4096 == len(data)
    assert (last.store_time_millis, 123, 0) == (
        checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp,
    )  # fmt: skip


def test_a_running_log_has_the_marker_and_only_rocketmqs_names(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_log(root) as log:
        append(log, new_message())
        assert (root / "abort").exists()

    assert {"checkpoint", "commitlog", "config", "lock", "reput"} == set(os.listdir(root))
    assert {"topics.json"} == set(os.listdir(root / "config"))
    assert json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]["orders"]["perm"] == 6


def test_read_only_changes_nothing_ignores_a_torn_tail_and_refuses_appends(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with open_log(live) as log:
        append(log, new_message(b"kept"))
        torn = append(log, new_message(b"torn"))[0]
        crashed = crash(live, tmp_path / "crashed")
    shutil.rmtree(crashed / "reput")
    with first_file(crashed).open("r+b") as file:
        file.seek(torn.commit_log_offset + 70)
        file.write(bytes(100))
    before = read_tree(crashed)

    with open_log(crashed, read_only=True) as log:
        assert torn.commit_log_offset == log.status.end_offset == log.status.flushed_offset
        assert b"kept" == log.opened.reads.get(0).body
        with pytest.raises(StoreReadOnlyError):
            append(log, new_message())
        with open_log(crashed, read_only=True) as second:
            assert 1 == len(next(second.following.follow(-1, 0)).requests)
    assert before == read_tree(crashed)


@pytest.mark.parametrize("strange", [{"notes.txt": b"x"}, {"commitlog/x": b"", "consumequeue_r/CURRENT": b"x"}])
def test_a_directory_that_is_no_store_is_left_alone(tmp_path: Path, strange: dict[str, bytes]) -> None:
    for name, data in strange.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    before = read_tree(tmp_path)

    with pytest.raises(UnsupportedStoreError):
        make_log(tmp_path).recover()
    assert before == read_tree(tmp_path)


def test_a_queue_without_records_in_the_log_goes_on_where_its_consume_queue_ends(copy_of_engine_store: Path) -> None:
    root = copy_of_engine_store
    frames = list(walk_frames(root))
    first_kept = min(int(path.name) for path in (root / "commitlog").iterdir() if int(path.name) > 0)
    (root / "commitlog" / ("0" * 20)).unlink()
    with open_log(root) as log:
        assert first_kept == log.status.first_offset
        assert sum(offset >= first_kept for offset, _ in frames) == log.opened.found.record_count
        for path in (root / "consumequeue").glob("*/*"):
            assert log.opened.found.queue_offsets.get((path.parent.name, int(path.name)), 0) > 0
