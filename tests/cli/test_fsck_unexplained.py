"""`reput fsck` on what a newer RocketMQ, or one with light queues, writes: nothing is wrong, and nothing changes."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from index_svc.index_file_set import IndexFileSet
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint
from store.format.derived.index_layout import index_key, key_hash
from store.format.record import PreparedMessage, Record, decode_record
from store.format.sys_flag import INNER_BATCH
from store.readers.index_reader import IndexLayout
from tests.cli.test_fsck import CLEAN, FOUND, REPAIRED, fsck
from tests.store.audit.support import audit, bad_codes, find
from tests.support.archives import message, write_log
from tests.support.dispatches import file_bytes
from tests.support.fixture_stores import walk_frames

UNIT = struct.Struct(">qiq")
QUEUE_FILE_BYTES = 4000


def with_property(made: PreparedMessage, name: str, value: str) -> PreparedMessage:
    """A message with one property more."""
    return made._replace(properties_bytes=made.properties_bytes + f"{name}\x01{value}\x02".encode())


def records_of(root: Path) -> list[Record]:
    """The records of a made log."""
    return [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(root)]


def write_queue(root: Path, topic: str, records: Sequence[Record], queue_id: int = 0) -> Path:
    """A queue with a unit of each of these records, without tags codes."""
    path = root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    units = b"".join(UNIT.pack(record.commit_log_offset, record.store_size_bytes, 0) for record in records)
    path.write_bytes(units.ljust(QUEUE_FILE_BYTES, b"\0"))
    return path


def write_index(root: Path, records: Sequence[Record], tagged: Sequence[bool], layout: IndexLayout) -> None:
    """Index files as RocketMQ writes them: with an entry for the tags of the records that are `tagged`."""
    files = IndexFileSet(root, RealFileSystem(), layout, lambda: 1_800_000_000_000)
    (root / "index").mkdir()
    for record, has_tags in zip(records, tagged, strict=True):
        keys = [record.unique_key or "", *record.keys, *([f"T#{record.tags}"] if has_tags and record.tags else [])]
        hashes = [key_hash(index_key(record.topic, key)) for key in keys]
        files.apply(_columns(record, hashes))
    files.flush()
    files.close()


def _columns(record: Record, hashes: Sequence[int]) -> DispatchColumns:
    import numpy as np

    one = np.array([record.commit_log_offset])
    small = np.zeros(1, dtype=np.int32)
    return DispatchColumns(
        (record.topic,), small, small, one * 0, one, small, one * 0, np.array([record.store_time_millis]), small, small - 1,
        np.zeros(len(hashes), dtype=np.int32), np.array(hashes, dtype=np.int32), None, None,
    )  # fmt: skip


def light_store(root: Path, further: str) -> Path:
    """A store whose records name further queues, which a broker has built; its own queue and index as fsck wants them."""
    made = [with_property(message(number), "INNER_MULTI_DISPATCH", further) for number in range(6)]
    write_log(root, made)
    write_queue(root, "orders", records_of(root))
    for name in further.split(","):
        write_queue(root, name, records_of(root)[1:4])
    write_index(root, records_of(root), [False] * 6, IndexLayout(50, 101))
    return root


@pytest.mark.parametrize("further", ["%LMQ%a,%LMQ%b", "copies"])
def test_queues_of_multi_dispatch_are_not_wrong_and_a_repair_of_other_queues_leaves_them(
    tmp_path: Path, further: str
) -> None:
    root = light_store(tmp_path / "store", further)
    assert bad_codes(root) == set()
    assert find(root, "QUEUE_LEFT_ALONE").severity == "info"
    light = {name: data for name, data in file_bytes(root / "consumequeue").items() if not name.startswith("orders")}
    assert fsck(root) == CLEAN
    queue = root / f"consumequeue/orders/0/{0:020d}"
    whole = queue.read_bytes()
    queue.write_bytes(b"\xff" * 40 + whole[40:])
    assert fsck(root) == FOUND
    assert fsck(root, "--repair") == REPAIRED
    assert queue.read_bytes() == whole
    assert {n: d for n, d in file_bytes(root / "consumequeue").items() if not n.startswith("orders")} == light
    assert fsck(root) == CLEAN


@pytest.mark.parametrize("shown_by", ["config", "record"])
def test_a_repair_made_a_plain_queue_of_the_single_messages_of_a_batch_topic(tmp_path: Path, shown_by: str) -> None:
    """RocketMQ does not start with it: "should be BatchCQ, but is SimpleCQ". Its row may be lost; then its log tells."""
    root, flag = tmp_path / "store", INNER_BATCH if shown_by == "record" else 0
    write_log(
        root, [message(0, topic="bcq"), message(1, topic="bcq", sys_flag=flag), message(2, topic="bcq"), message(3)]
    )
    (root / "config").mkdir()
    if shown_by == "config":
        rows = {"bcq": {"topicName": "bcq", "attributes": {"queue.type": "BatchCQ"}}}
        (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": rows}))
    assert "(bcq)" in find(root, "STORE_FEATURE").what
    assert fsck(root) == FOUND, "there is no queue of orders"
    assert fsck(root, "--repair") == REPAIRED
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["orders"]
    assert fsck(root) == CLEAN


def test_a_light_queue_whose_records_expired_is_left_alone(tmp_path: Path) -> None:
    root = light_store(tmp_path / "store", "%LMQ%a")
    late = root / f"consumequeue/%LMQ%b/0/{0:020d}"
    late.parent.mkdir(parents=True)
    late.write_bytes(UNIT.pack(1 << 40, 100, 0).ljust(QUEUE_FILE_BYTES, b"\0"))
    assert fsck(root) == CLEAN


@pytest.mark.parametrize(
    "tagged",
    [[True] * 60, [True] * 30 + [False] * 30, [False] * 30 + [True] * 30, [number % 3 == 0 for number in range(60)]],
    ids=["all", "then by Reput", "then by RocketMQ 5.5", "mixed"],
)
def test_index_entries_of_tags_are_not_wrong(tmp_path: Path, tagged: list[bool]) -> None:
    root = tmp_path / "store"
    write_log(root, [message(n, keys=f"k{n} two", tags="A" if n % 2 else "") for n in range(60)])
    # Tags codes are those of the audit: only the index is judged here.
    write_index(root, records_of(root), tagged, IndexLayout(20, 51))
    found = audit(root).findings
    assert {finding.code for finding in found.kept if finding.code.startswith("INDEX")} == {"INDEX_ENTRIES_OF_TAGS"}
    count = sum(1 for n in range(60) if tagged[n] and n % 2)
    assert found.counts["INDEX_ENTRIES_OF_TAGS"] == count


def test_an_entry_that_is_neither_of_a_key_nor_of_the_tags_is_surplus_among_entries_of_tags(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_log(root, [message(n, keys=f"k{n}", tags="A") for n in range(20)])
    records = records_of(root)
    other = write_log(tmp_path / "other", [message(n, keys=f"k{n}", tags="B") for n in range(20)])
    records[7] = records_of(other)[7]
    write_index(root, records, [True] * 20, IndexLayout(20, 101))
    assert find(root, "INDEX_SURPLUS_ENTRIES").count == 1
    assert audit(root).findings.counts["INDEX_ENTRIES_OF_TAGS"] == 19


def test_a_repair_of_the_checkpoint_keeps_the_sixth_number_of_rocketmq_5_5_within_the_log(tmp_path: Path) -> None:
    root = light_store(tmp_path / "store", "%LMQ%a")
    end = records_of(root)[-1].commit_log_offset + records_of(root)[-1].store_size_bytes
    for written, wanted in ((end - 7, end - 7), (1 << 40, end)):
        ahead = StoreCheckpoint(physic_msg_timestamp=1 << 45, rest=struct.pack(">qq", written, 77))
        (root / "checkpoint").write_bytes(encode_checkpoint(ahead))
        assert fsck(root, "--repair") == REPAIRED
        assert decode_checkpoint((root / "checkpoint").read_bytes()).rest == struct.pack(">qq", wanted, 77)
