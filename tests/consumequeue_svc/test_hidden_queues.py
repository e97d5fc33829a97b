"""Queues in a form that is not supported: none of their files is read or written, and no call tells a number of them."""

from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.servicer import ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following.follower_progress import FollowerProgress
from store.errors import UnsupportedStoreError
from store.files.file_system import RealFileSystem
from store.format.sys_flag import INNER_BATCH, NEED_UNWRAP
from tests.support.dispatches import feed, file_bytes, make_request

FILE_SIZE = 4000
BATCH_FLAG = INNER_BATCH | NEED_UNWRAP  # what SendMessageProcessor sets
LIGHT = "%LMQ%first%r%a"


def open_builder(root: Path, log_end: int, **hidden: str) -> tuple[ConsumeQueueBuilder, ConsumeQueueTable]:
    table = ConsumeQueueTable(root, RealFileSystem(), FILE_SIZE, hidden=hidden)
    table.load()
    builder = ConsumeQueueBuilder(table, root / "reput/consumequeue/checkpoint.json")
    builder.recover(is_clean_store=True, log_first_offset=0, log_end_offset=log_end)
    return builder, table


def batch_log() -> list:
    """Two batches of three and two messages, as `queue.type=BatchCQ` has them, beside an ordinary topic."""
    return [
        make_request(0, topic="bcq", queue_offset=0, sys_flag=BATCH_FLAG),
        make_request(1, topic="plain", queue_offset=0),
        make_request(2, topic="bcq", queue_offset=3, sys_flag=BATCH_FLAG),
        make_request(3, topic="plain", queue_offset=1),
    ]


def foreign_queue(root: Path, topic: str) -> Path:
    path = root / "consumequeue" / topic / "0" / ("0" * 20)
    path.parent.mkdir(parents=True)
    path.write_bytes(make_request(1).commit_log_offset.to_bytes(8, "big") + bytes(3) + b"\x64" + bytes(FILE_SIZE - 12))
    return path


def test_a_batch_record_made_a_plain_queue_with_which_the_broker_did_not_start(tmp_path: Path) -> None:
    builder, table = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    builder.stop()
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["plain"]
    assert table.queue("plain", 0).units.end == 2
    with pytest.raises(UnsupportedStoreError, match="topic bcq uses batch queues"):
        table.queue("bcq", 0)


def test_a_topic_with_a_batch_stays_hidden_after_a_restart_that_reads_no_batch_again(tmp_path: Path) -> None:
    builder, _ = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    builder.stop()
    _, table = open_builder(tmp_path, 400)
    assert list(table.hidden) == ["bcq"]


def test_single_messages_of_a_batch_topic_make_no_queue_either(tmp_path: Path) -> None:
    """A broker puts no unit of them in any queue: CommitLogDispatcherBuildConsumeQueue, BatchConsumeQueue."""
    builder, table = open_builder(tmp_path, 100, bcq="batch queues")
    feed(builder, [make_request(0, topic="bcq")], log_end_offset=100)
    builder.stop()
    assert not (tmp_path / "consumequeue" / "bcq").exists()
    assert table.items() == []


@pytest.mark.parametrize("topic", ["bcq", LIGHT])
def test_files_of_hidden_queues_were_removed_by_a_start(tmp_path: Path, topic: str) -> None:
    """A start on a store without a checkpoint of ours compares all queues with the log and cuts what the log does not say."""
    path = foreign_queue(tmp_path, topic)
    before = file_bytes(tmp_path / "consumequeue" / topic)
    builder, table = open_builder(tmp_path, 400, bcq="batch queues")
    feed(builder, batch_log(), log_end_offset=400)
    builder.stop()
    assert path.exists()
    assert file_bytes(tmp_path / "consumequeue" / topic) == before
    with pytest.raises(UnsupportedStoreError):
        table.queue(topic, 0)


def test_every_call_by_queue_is_refused_and_the_list_of_all_names_the_topic(tmp_path: Path) -> None:
    builder, table = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    servicer = ConsumeQueueServicer(FollowerProgress(), lambda units, _: [0 for _ in units])
    servicer.open(table)
    for topic in ("bcq", LIGHT):
        with pytest.raises(UnsupportedStoreError):
            servicer.ListQueues(pb.ListQueuesRequest(topic=topic), None)
    with pytest.raises(UnsupportedStoreError):
        servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="bcq", queue_offset=1), None)
    with pytest.raises(UnsupportedStoreError):
        servicer.SearchOffset(pb.SearchOffsetRequest(topic="bcq", time=Timestamp(seconds=1)), None)
    rows = servicer.ListQueues(pb.ListQueuesRequest(), None).queues
    assert [(row.topic, row.max_offset, "batch queues" in row.problem) for row in rows] == [
        ("plain", 2, False),
        ("bcq", 0, True),
    ]
    builder.stop()
