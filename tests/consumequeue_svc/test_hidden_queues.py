"""Queues in a form that is not supported: none of their files is read or written, and no call tells a number of them."""

from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from consumequeue_svc.batch_queues import BatchQueues
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.servicer import NOT_EXACT, ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following.follower_progress import FollowerProgress
from store.errors import UnsupportedStoreError
from store.features.table import hidden_by_record
from store.files.file_system import RealFileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.sys_flag import INNER_BATCH, NEED_UNWRAP
from tests.support.dispatches import feed, file_bytes, make_request

FILE_SIZE = 4000
BATCH_FLAG = INNER_BATCH | NEED_UNWRAP  # what SendMessageProcessor sets
LIGHT = "%LMQ%first%r%a"
CHECKPOINT = Path("reput/consumequeue/checkpoint.json")


def open_builder(
    root: Path, log_end: int, log_first: int = 0, **hidden: str
) -> tuple[ConsumeQueueBuilder, ConsumeQueueTable]:
    table = ConsumeQueueTable(root, RealFileSystem(), FILE_SIZE, hidden=hidden)
    table.load()
    builder = ConsumeQueueBuilder(table, root / "reput/consumequeue/checkpoint.json")
    builder.recover(is_clean_store=True, log_first_offset=log_first, log_end_offset=log_end)
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


def test_a_batch_topic_stayed_hidden_for_ever_after_its_last_batch_expired(tmp_path: Path) -> None:
    """A topic of that name in plain queues can be made then."""
    builder, _ = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    builder.stop()
    assert list(open_builder(tmp_path, 400, 200)[1].hidden) == ["bcq"], "the batch at 200 is still there"
    builder, table = open_builder(tmp_path, 500, 300)
    assert dict(table.hidden) == {}
    rest = [make_request(3, topic="plain", queue_offset=1), make_request(4, topic="bcq", queue_offset=5)]
    feed(builder, rest, log_end_offset=500, log_first_offset=300)
    assert table.queue("bcq", 0).units.end == 6
    builder.stop()
    builder, table = open_builder(tmp_path, 500, 300)
    assert not table.hidden
    assert not builder.is_replay, "the log is applied again once"
    assert builder.progress.next_offset == 500


def follow_on(builder: ConsumeQueueBuilder, log: list, *, log_first: int = 0) -> None:
    """Feeds what lies behind the builder's place."""
    start = max(builder.start_offset(), log_first)
    rest = [request for request in log if request.commit_log_offset >= start]
    feed(builder, rest, log_end_offset=log[-1].next_offset, log_first_offset=log_first)


SENT_LATER = [make_request(4, topic="bcq", queue_offset=5), make_request(5, topic="plain", queue_offset=2)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_message_to_a_reopened_topic_was_never_delivered_when_the_commit_log_alone_had_restarted(
    tmp_path: Path, is_killed: bool
) -> None:
    """The builder of that life still hid the topic, and its checkpoint lay behind the message."""
    log = [*batch_log(), *SENT_LATER]
    builder, table = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    feed(builder, SENT_LATER, log_end_offset=600, log_first_offset=300)
    assert list(table.hidden) == ["bcq"]
    end_life(builder, is_killed)
    before = file_bytes(tmp_path / "consumequeue/plain")
    builder, table = open_builder(tmp_path, 600, 300)
    builder.begin()
    follow_on(builder, log, log_first=300)
    builder.stop()
    assert (table.queue("bcq", 0).units.end, table.queue("plain", 0).units.end) == (6, 3)
    assert file_bytes(tmp_path / "consumequeue/plain") == before
    assert not (tmp_path / "reput/aside").exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_messages_of_a_topic_that_config_had_hidden_were_missing_once_it_was_plain(
    tmp_path: Path, is_killed: bool
) -> None:
    """Its row and folder were lost, or a broker made it plain; the records before our checkpoint were not applied."""
    log = [make_request(0, topic="plain", queue_offset=0), make_request(1, topic="bcq", queue_offset=0)]
    builder, table = open_builder(tmp_path, 200, bcq="batch queues")
    feed(builder, log, log_end_offset=200)
    end_life(builder, is_killed)
    builder, table = open_builder(tmp_path, 200)
    builder.begin()
    follow_on(builder, log)
    builder.stop()
    assert (table.queue("bcq", 0).units.end, table.queue("plain", 0).units.end) == (1, 1)


def test_a_replay_that_was_killed_begins_anew_when_a_topic_that_it_left_out_is_hidden_no_more(tmp_path: Path) -> None:
    foreign_queue(tmp_path, "plain")
    log = [make_request(0, topic="plain", queue_offset=0), make_request(1, topic="bcq", queue_offset=0)]
    builder, _ = open_builder(tmp_path, 300, bcq="batch queues")
    builder.begin()
    feed(builder, log, log_end_offset=300)
    assert builder.is_replay
    end_life(builder, is_killed=True)
    builder, table = open_builder(tmp_path, 300)
    builder.begin()
    follow_on(builder, [*log, make_request(2, topic="plain", queue_offset=1)])
    builder.stop()
    assert table.queue("bcq", 0).units.end == 1


def end_life(builder: ConsumeQueueBuilder, is_killed: bool) -> None:
    """A clean stop, or a kill behind a checkpoint."""
    if is_killed:
        builder._prepare_checkpoint(is_clean=False)()
        builder.abandon()
    else:
        builder.stop()


def plain_log() -> list:
    """Another log, in which the topic has ordinary messages."""
    return [make_request(number, topic=("bcq", "plain")[number % 2], queue_offset=number // 2) for number in range(4)]


@pytest.mark.parametrize("how", ["queues are others", "log is cut", "log is another one"])
def test_hidden_topics_of_a_log_that_is_no_more_hid_those_of_the_new_one(tmp_path: Path, how: str) -> None:
    builder, table = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    if how == "log is another one":
        builder.rebuild()
    else:
        builder.stop()
        if how == "queues are others":
            (tmp_path / "consumequeue/plain/0" / ("0" * 20)).unlink()
        builder, table = open_builder(tmp_path, 400 if how == "queues are others" else 100)
    assert builder.is_replay or builder.progress.next_offset < 0
    feed(builder, plain_log(), log_end_offset=400)
    assert dict(table.hidden) == {}
    assert table.batches.state() == {}
    assert table.queue("bcq", 0).units.end == 2
    builder.stop()


def test_plain_queues_of_a_topic_are_back_when_another_log_has_no_batch_of_it(tmp_path: Path) -> None:
    path = foreign_queue(tmp_path, "bcq")
    builder, table = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    assert path.exists()
    builder.rebuild()
    feed(builder, plain_log(), log_end_offset=400)
    builder.stop()
    assert table.queue("bcq", 0).units.end == 2


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


def test_every_call_by_queue_is_refused_for_a_topic_in_another_form(tmp_path: Path) -> None:
    builder, table = open_builder(tmp_path, 400)
    feed(builder, batch_log(), log_end_offset=400)
    servicer = ConsumeQueueServicer(FollowerProgress(), lambda units, _: [0 for _ in units])
    servicer.open(table)
    with pytest.raises(UnsupportedStoreError):
        servicer.ListQueues(pb.ListQueuesRequest(topic="bcq"), None)
    with pytest.raises(UnsupportedStoreError):
        servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="bcq", queue_offset=1), None)
    with pytest.raises(UnsupportedStoreError):
        servicer.SearchOffset(pb.SearchOffsetRequest(topic="bcq", time=Timestamp(seconds=1)), None)
    builder.stop()


def listed(root: Path, page_size: int = 0, *, counts: dict[int, int] | None = None, **hidden: str) -> list[tuple]:
    """The rows of the list of all queues, over all pages, after a start that follows the whole log."""
    builder, table = open_builder(root, 400, **hidden)
    table.batches = BatchQueues(RealFileSystem(), root, (counts or {}).get)
    if builder.progress.next_offset < 400:
        feed(builder, batch_log(), log_end_offset=400)
    else:
        table.batches.restore(read_json_state(table.fs, root / CHECKPOINT)["batch_queues"])
    progress = FollowerProgress()
    progress.see_log(0, 400)
    servicer = ConsumeQueueServicer(progress, lambda units, _: [0 for _ in units])
    servicer.open(table)
    rows, token = [], ""
    while True:
        answer = servicer.ListQueues(pb.ListQueuesRequest(page_size=page_size, page_token=token), None)
        rows += [(row.topic, row.queue_id, row.min_offset, row.max_offset, row.problem) for row in answer.queues]
        token = answer.next_page_token
        if not token:
            builder.stop()
            return rows


@pytest.mark.parametrize("page_size", [0, 1, 2])
def test_the_list_of_all_queues_had_0_for_the_end_of_a_batch_queue(tmp_path: Path, page_size: int) -> None:
    """A broker answers 5: the second batch begins at 3 and has two messages."""
    for _ in range(2):  # also after a start that reads no batch again
        bcq, plain = listed(tmp_path, page_size, counts={200: 2})
        assert bcq[:4] == ("bcq", 0, 0, 5)
        assert bcq[4] == hidden_by_record("bcq")
        assert plain == ("plain", 0, 0, 2, "")


def test_a_range_that_is_known_in_part_says_so_and_a_topic_without_messages_has_a_row(tmp_path: Path) -> None:
    bcq, none, _ = listed(tmp_path, none="topic none uses batch queues")
    assert bcq[:4] == ("bcq", 0, 0, 4)
    assert bcq[4].endswith(NOT_EXACT)
    assert none == ("none", 0, 0, 0, "topic none uses batch queues")


def test_a_checkpoint_of_an_older_version_does_not_hide_the_ends_of_batch_queues(tmp_path: Path) -> None:
    listed(tmp_path)
    path = tmp_path / CHECKPOINT
    state = read_json_state(RealFileSystem(), path)
    assert state is not None
    del state["batch_queues"]
    write_json_state(RealFileSystem(), path, state)
    builder, _ = open_builder(tmp_path, 400)
    assert builder.progress.next_offset <= 0, "the log is followed from its begin"
    assert builder.is_replay
