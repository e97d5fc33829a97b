"""A broker's store as kill -9 left it, damaged in seven ways and once not: what RocketMQ 5.3.3 made of it, and what we do.

The end of the log, the queue files and the range of every queue are RocketMQ's wherever RocketMQ is right. It is wrong in
three cases: it accepts a torn record, and rebuilds lost queues and indexes only from its checkpoint on. The index always is
what the log alone gives; RocketMQ's has one key twice.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from store.derive.dispatch import DispatchRequest
from store.files.file_system import RealFileSystem
from store.format.checkpoint import decode_checkpoint
from store.readers.index_reader import IndexLayout, list_index_files
from tests.support.dispatches import requests_of
from tests.support.fixture_stores import read_recoveries
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.torture.local_shard import LocalShard, open_shard

RECOVERIES = read_recoveries()
LAST_RECORD, LOG_END = 2490708, 2491130
UNIT_COUNT, KEY_COUNT = 2784, 6249
LAYOUT = IndexLayout(500, 1000)
# Where the last record was damaged: RocketMQ keeps the torn one, since its body is whole.
CUT_CASES = ("torn_last_record", "flipped_body_byte")

Damage = Callable[[Path], None]


def _patch(offset: int, data: bytes) -> Damage:
    def damage(root: Path) -> None:
        with (root / "commitlog" / "00000000000002097152").open("r+b") as file:
            file.seek(offset - 2097152)
            file.write(data)

    return damage


def _flip_body_byte(root: Path) -> None:
    at = RECOVERIES["flipped_body_byte"]["damage"]["flipped"]
    path = root / "commitlog" / "00000000000002097152"
    _patch(at, bytes([path.read_bytes()[at - 2097152] ^ 0xFF]))(root)


def _old_record_as_tail(root: Path) -> None:
    """A whole record at a place that is not its own: bytes of a reused file."""
    data = (root / "commitlog" / "00000000000002097152").read_bytes()
    _patch(LOG_END, data[LAST_RECORD - 2097152 : LOG_END - 2097152])(root)


def _shorten_queue(topic: str, queue_id: int, file_name: str, size_bytes: int) -> Damage:
    def damage(root: Path) -> None:
        path = root / "consumequeue" / topic / str(queue_id) / file_name
        path.write_bytes(path.read_bytes()[:size_bytes])

    return damage


def _remove(name: str) -> Damage:
    def damage(root: Path) -> None:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    return damage


STATE_TOPICS = ("rmq_sys_REPUT_CONSUMER_STATE", "rmq_sys_REPUT_SCHEDULE_STATE")
GARBAGE = bytes(range(1, 250)) * 4
DAMAGES: list[tuple[str, Damage]] = [
    ("as_is", lambda root: None),
    ("torn_last_record", _patch(2491093, bytes(LOG_END - 2491093))),
    ("flipped_body_byte", _flip_body_byte),
    ("garbage_tail", _patch(LOG_END, GARBAGE)),
    ("garbage_tail", _patch(LOG_END, b"\xff" * 5000)),
    ("garbage_tail", _old_record_as_tail),
    ("no_consumequeue", _remove("consumequeue")),
    ("no_index", _remove("index")),
    ("no_checkpoint", _remove("checkpoint")),
    ("short_consumequeue", _shorten_queue("b_order", 0, "00000000000000004000", 100)),
    ("short_consumequeue", _shorten_queue("b_order", 2, "00000000000000000000", 3990)),
    ("short_consumequeue", _shorten_queue("b_payment", 1, "00000000000000004000", 0)),
    ("short_consumequeue", _shorten_queue("b_log", 3, "00000000000000000000", 21)),
]


def _contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in list_index_files(RealFileSystem(), root)]


@pytest.fixture(scope="module")
def whole(crashed_store: Path) -> list[DispatchRequest]:
    """What builders need of each record of the undamaged log."""
    return requests_of(crashed_store)


@pytest.fixture(scope="module")
def rebuilt_indexes(crashed_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[bytes]]:
    """The index files that the log alone gives, by the end of the log."""
    found: dict[int, list[bytes]] = {}
    for end in (LAST_RECORD, LOG_END):
        root = tmp_path_factory.mktemp("rebuilt")
        shutil.copytree(crashed_store / "commitlog", root / "commitlog")
        for path in (root / "commitlog").iterdir():
            path.chmod(0o644)
        if end < LOG_END:
            _patch(end, bytes(LOG_END - end))(root)
        with open_shard(root, queue_file_size_bytes=4000, index_layout=LAYOUT):
            pass
        found[end] = _contents(root)
    return found


def _ranges(shard: LocalShard) -> dict[tuple[str, int], tuple[int, int]]:
    first = shard.log.status.first_offset
    return {key: (queue.units.min_offset(first), queue.units.end) for key, queue in shard.table.items()}


def _rocketmq_ranges(case: str) -> dict[tuple[str, int], tuple[int, int]]:
    rows = RECOVERIES[case]["broker_stats"]["queues"]
    return {(row["topic"], row["queue_id"]): (row["min"], row["max"]) for row in rows if row["max"] > 0}


def _written_units(directory: Path) -> bytes:
    """All places of a queue that are not zero, in order."""
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    return b"".join(data[at : at + 20] for at in range(0, len(data), 20) if any(data[at : at + 20]))


def _queue_digests(root: Path) -> dict[tuple[str, int], str]:
    """The fixture's digest of a queue: over its written units."""
    return {
        (directory.parent.name, int(directory.name)): hashlib.sha256(_written_units(directory)).hexdigest()
        for directory in (root / "consumequeue").glob("*/*")
    }


def _rocketmq_digests(case: str) -> dict[tuple[str, int], str]:
    rows: list[dict[str, Any]] = RECOVERIES[case]["while_running"]["consumequeue"]
    return {(row["topic"], row["queue_id"]): row["sha256"] for row in rows}


def test_every_recorded_case_is_replayed() -> None:
    assert set(RECOVERIES) == {case for case, _ in DAMAGES}


@pytest.mark.parametrize(("case", "damage"), DAMAGES)
def test_a_crashed_broker_store_recovers_to_what_is_right(
    case: str,
    damage: Damage,
    copy_of_crashed_store: Path,
    crashed_store: Path,
    rebuilt_indexes: dict[int, list[bytes]],
    whole: list[DispatchRequest],
) -> None:
    root = copy_of_crashed_store
    damage(root)
    end = LAST_RECORD if case in CUT_CASES else LOG_END
    was_cut = case in CUT_CASES or case == "garbage_tail"

    with open_shard(root, index_layout=LAYOUT) as shard:
        assert end == shard.log.status.end_offset == shard.log.status.flushed_offset
        assert (end if was_cut else None) == shard.log.opened.found.cut_offset
        assert sum(request.next_offset <= end for request in whole) == shard.log.opened.found.record_count
        assert not shard.queues.progress.catching_up
        assert not shard.index.progress.catching_up
        ranges = _ranges(shard)
        last = whole[-1]
        assert [r.queue_offset for r in whole if (r.topic, r.queue_id) == (last.topic, last.queue_id)] == list(range(6))
        assert (5 if case in CUT_CASES else 6) == ranges[last.topic, last.queue_id][1]
    if case == "torn_last_record":
        assert LOG_END == RECOVERIES[case]["broker_stats"]["commitLogMaxOffset"]
        assert _rocketmq_ranges("flipped_body_byte") == ranges
    elif case == "no_consumequeue":
        rows = RECOVERIES[case]["while_running"]["consumequeue"]
        assert 384 == sum(row["nonzero_units"] for row in rows)
        assert _rocketmq_ranges("as_is") == ranges
    else:
        assert end == RECOVERIES[case]["broker_stats"]["commitLogMaxOffset"]
        assert _rocketmq_ranges("as_is" if case == "no_index" else case) == ranges

    # Queue files. RocketMQ leaves the unit of a record that it cut behind the queue's end; ours is gone.
    digests, expected = _queue_digests(root), _rocketmq_digests("as_is" if case == "no_consumequeue" else case)
    stale = {("%DLQ%b_cg", 0)} if case in CUT_CASES else set()
    assert {key for key in expected if digests[key] != expected[key]} == stale
    assert digests.keys() == expected.keys()
    for topic, queue_id in stale:
        directory = Path("consumequeue") / topic / str(queue_id)
        before = _written_units(crashed_store / directory)
        assert hashlib.sha256(before).hexdigest() == expected[topic, queue_id]
        assert _written_units(root / directory) == before[:-20]
    unit_count = sum(len(_written_units(directory)) // 20 for directory in (root / "consumequeue").glob("*/*"))
    assert UNIT_COUNT - len(stale) == unit_count

    assert rebuilt_indexes[end] == _contents(root)


def test_the_rebuilt_index_is_the_one_that_rocketmq_builds_when_it_starts_anew(
    rebuilt_indexes: dict[int, list[bytes]],
) -> None:
    """Without its checkpoint it indexes the whole log again: 6,249 keys; else 6,250, or 342 without an index."""
    keys = {
        case: sum(row["header"][5] - 1 for row in RECOVERIES[case]["while_running"]["index"]) for case in RECOVERIES
    }
    assert (KEY_COUNT, KEY_COUNT + 1, 342) == (keys["no_checkpoint"], keys["as_is"], keys["no_index"])

    digests = [row["sha256"] for row in RECOVERIES["no_checkpoint"]["while_running"]["index"]]
    assert digests == [hashlib.sha256(data).hexdigest() for data in rebuilt_indexes[LOG_END]]


def test_the_checkpoint_that_is_written_anew_says_what_rocketmqs_said(copy_of_crashed_store: Path) -> None:
    root = copy_of_crashed_store
    (root / "checkpoint").unlink()
    with open_shard(root, index_layout=LAYOUT) as shard:
        last = shard.log.status.last_store_time_millis

    # The newest record's time stands in RocketMQ's own second field; its first is 0 until something is appended.
    assert last == RECOVERIES["no_checkpoint"]["while_running"]["checkpoint"][1]
    assert last == decode_checkpoint((root / "checkpoint").read_bytes()).physic_msg_timestamp


def test_the_whole_stack_recovers_a_torn_store_without_queues_and_index(
    copy_of_crashed_store: Path, rebuilt_indexes: dict[int, list[bytes]]
) -> None:
    """Three damages at once, through all services."""
    root = copy_of_crashed_store
    for case, damage in DAMAGES:
        if case in ("torn_last_record", "no_consumequeue", "no_index"):
            damage(root)
    # Nothing in an empty directory tells how RocketMQ had divided its files.
    settings = {
        "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
        "REPUT_INDEX_HASH_SLOT_COUNT": "500",
        "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
    }

    with hosted_stack(root, settings=settings) as stack:
        stack.wait_until_built()
        services = {
            row.service: row
            for row in stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
        }
        # Behind it stands only what the consumer service took over of the broker's groups.
        assert LAST_RECORD < services["commitlog"].log_end_offset < LAST_RECORD + 4096
        answer = stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="%DLQ%b_cg", queue_id=0, max_messages=100), timeout=WAIT_SECONDS_MAX
        )
        assert (0, 5, 5) == (answer.min_offset, answer.max_offset, len(answer.messages))
        assert 0 == stack.stop()

    expected = _rocketmq_digests("as_is")
    found = {key: digest for key, digest in _queue_digests(root).items() if key[0] not in STATE_TOPICS}
    assert {("%DLQ%b_cg", 0)} == {key for key, digest in found.items() if digest != expected[key]}
    assert rebuilt_indexes[LAST_RECORD] == _contents(root)
