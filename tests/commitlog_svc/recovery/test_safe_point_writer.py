"""RocketMQ's checkpoint file: what the log and its two builders write there."""

from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any, cast
from unittest.mock import Mock

import pytest

from commitlog_svc.append.appender import Appender
from commitlog_svc.append.topics.light_offsets import LightOffsets
from commitlog_svc.lookup import TailStarts
from commitlog_svc.recovery.safe_point_writer import CheckpointFile, SafePointWriter
from commitlog_svc.reput.followers import FollowerRegistry
from store.files import json_state
from store.files.file_system import RealFileSystem
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint


def open_checkpoint(root: Path) -> tuple[FollowerRegistry, CheckpointFile]:
    followers = FollowerRegistry(RealFileSystem(), root / "own", ("consumequeue", "index"))
    followers.load()
    checkpoint = CheckpointFile(RealFileSystem(), root, followers)
    checkpoint.load()
    return followers, checkpoint


def read(root: Path) -> StoreCheckpoint:
    return decode_checkpoint((root / "checkpoint").read_bytes())


def test_a_builder_switched_off_leaves_its_time_alone(tmp_path: Path) -> None:
    followers, checkpoint = open_checkpoint(tmp_path)
    followers.report("index", 100, 777, 500)
    checkpoint.write(500, 900)
    followers.report("index", -1, 0, 500)
    checkpoint.write(500, 950)

    assert (read(tmp_path).physic_msg_timestamp, read(tmp_path).index_msg_timestamp) == (950, 777)


def test_the_times_are_those_of_queues_and_index_whatever_else_follows(tmp_path: Path) -> None:
    followers, checkpoint = open_checkpoint(tmp_path)
    for name, time_millis in (("consumequeue", 111), ("index", 222), ("schedule", 5)):
        followers.report(name, 100, time_millis, 500)
    checkpoint.write(500, 900)

    assert (read(tmp_path).logics_msg_timestamp, read(tmp_path).index_msg_timestamp) == (111, 222)


def test_a_brokers_confirm_offset_is_kept_up_to_date_and_none_is_made(tmp_path: Path) -> None:
    _, checkpoint = open_checkpoint(tmp_path)
    checkpoint.write(500, 900)
    assert read(tmp_path).confirm_phy_offset == 0

    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(StoreCheckpoint(confirm_phy_offset=70)))
    _, checkpoint = open_checkpoint(tmp_path)
    checkpoint.write(400, 900)

    assert read(tmp_path).confirm_phy_offset == 400


class SlowAppender:
    """A log that grows by a record whenever it is asked, and takes two seconds to tell its many queues."""

    last_record = (0, 10)
    greatest_store_time_millis = 1

    def __init__(self, queue_count: int) -> None:
        self.seconds = 0.0
        self._offsets = {("t", number): 1 for number in range(queue_count)}

    @property
    def end_offset(self) -> int:
        return 10 + int(self.seconds * 1_000)

    def clock(self) -> float:
        return self.seconds

    def safe_point(self) -> tuple[Any, ...]:
        self.seconds += 2.0
        return self.end_offset, self.last_record, self._offsets, {}, LightOffsets().take_changes()


@pytest.mark.parametrize(
    ("queue_count", "step"), [(json_state.ROW_COUNT_FEW, 2.5), (json_state.ROW_COUNT_FEW + 1, 20.0)]
)
def test_safe_points_of_many_queues_leave_time_between_them(tmp_path: Path, queue_count: int, step: float) -> None:
    appender, commits, files = SlowAppender(queue_count), Mock(), Mock()
    files.read.return_value = bytes(10)
    files.first_offset = 0
    writer = SafePointWriter(RealFileSystem(), tmp_path, files, Mock(), Event(), appender.clock)
    found = Mock(record_count=1, last_store_time_millis=1, light_journal=None, tail_starts=TailStarts())
    writer.begin(found, cast(Appender, appender), commits, Mock())
    times = []
    for _ in range(100):
        known = writer.snapshot_offset
        writer.write_in_turn()
        if writer.snapshot_offset != known:
            times.append(appender.seconds)
        appender.seconds += 0.5

    assert len(times) > 2
    assert {later - earlier for earlier, later in pairwise(times)} == {step}
