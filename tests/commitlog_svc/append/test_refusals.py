"""What a later life of a follower does to the appends of an earlier one."""

import random
import threading
from pathlib import Path

import pytest

from commitlog_svc.append.refusals import FollowerFence
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.reput.followers import FOLLOWER_COUNT_MAX
from store.errors import FollowerFencedError, InvalidArgumentError
from tests.commitlog_svc.internal import all_records, internal_record
from tests.commitlog_svc.support import BORN_HOST, open_log

THREAD_COUNT = 8
APPEND_COUNT = 60
SEED = 20_261_123


def append_as(log: CommitLog, follower: str, epoch: int, body: bytes = b"moved", topic: str = "orders") -> None:
    log.opened.appends.append_internal(
        [internal_record(body, topic)], sync=False, born_host=BORN_HOST, follower=follower, follower_epoch=epoch
    )


def test_only_a_larger_epoch_of_the_same_follower_refuses_an_append() -> None:
    fence = FollowerFence()
    fence.enter("consumer", 5)
    fence.enter("consumer", 5)
    fence.enter("schedule", 1)
    fence.enter("consumer", 6)

    with pytest.raises(FollowerFencedError) as refused:
        fence.enter("consumer", 5)

    assert refused.value.metadata == {"follower": "consumer", "followerEpoch": "5", "currentEpoch": "6"}
    fence.enter("schedule", 1)
    fence.enter("consumer", 6)
    for _ in range(2):
        fence.enter("", 0)


@pytest.mark.parametrize(
    ("follower", "epoch", "field"),
    [
        ("Consumer", 1, "follower"),
        ("a/b", 1, "follower"),
        ("x" * 64, 1, "follower"),
        ("consumer", -1, "follower_epoch"),
    ],
)
def test_a_name_or_an_epoch_that_none_is_is_refused_by_its_field(follower: str, epoch: int, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        FollowerFence().enter(follower, epoch)
    assert refused.value.metadata["field"] == field


def test_names_of_callers_take_no_memory_without_end() -> None:
    fence = FollowerFence()
    for number in range(FOLLOWER_COUNT_MAX):
        fence.enter(f"follower-{number}", 1)

    with pytest.raises(InvalidArgumentError):
        fence.enter("one-more", 1)
    fence.enter("follower-0", 2)


def test_a_fenced_append_leaves_neither_a_record_nor_a_topic(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append_as(log, "consumer", 2)
        end_offset = log.status.end_offset

        with pytest.raises(FollowerFencedError):
            append_as(log, "consumer", 1, topic="new-topic")
        assert log.status.end_offset == end_offset
        assert log.topics.find("new-topic") is None
        append_as(log, "schedule", 1)
        append_as(log, "", 0)

    with open_log(tmp_path) as log:  # epochs end with the process, as do the appends that they refuse
        append_as(log, "consumer", 1)


def test_no_record_of_an_earlier_life_lies_behind_one_of_a_later_life(tmp_path: Path) -> None:
    """Many lives append at once. In the log epochs never fall, and it has what was accepted and nothing that was refused."""
    accepted: list[bytes] = []
    refused_count = 0
    lock = threading.Lock()
    newest = [0]

    with open_log(tmp_path, file_size_bytes=1 << 20) as log:

        def live(seed: int) -> None:
            nonlocal refused_count
            random_ = random.Random(seed)
            for number in range(APPEND_COUNT):
                with lock:
                    newest[0] += random_.random() < 0.3
                    epoch = max(0, newest[0] - random_.choice((0, 0, 0, 1, 2)))
                body = b"%d %d %d" % (epoch, seed, number)
                try:
                    append_as(log, "consumer", epoch, body)
                except FollowerFencedError:
                    with lock:
                        refused_count += 1
                else:
                    with lock:
                        accepted.append(body)

        threads = [threading.Thread(target=live, args=(SEED + number,)) for number in range(THREAD_COUNT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.opened.appends.append_internal([internal_record(b"end", "end")], sync=True, born_host=BORN_HOST)
        bodies = [record.body for record in all_records(log) if record.topic == "orders"]

    epochs = [int(body.split()[0]) for body in bodies]
    assert epochs == sorted(epochs)
    assert sorted(bodies) == sorted(accepted)
    assert refused_count > 0
    assert len(bodies) > THREAD_COUNT


def test_an_append_that_waits_for_the_log_is_fenced_by_one_that_came_later(tmp_path: Path) -> None:
    """It passed the first check; the check that counts is made when its turn to be written has come."""
    with open_log(tmp_path) as log:
        appends, written = log.opened.appends, threading.Event()
        outcome: list[Exception] = []
        wait_for_room = appends._commits.wait_for_room
        is_first = [True]

        def overtaken() -> None:
            wait_for_room()
            if is_first[0]:  # between the first check of epoch 5 and its turn
                is_first[0] = False
                append_as(log, "consumer", 6, b"new life")
                written.set()

        appends._commits.wait_for_room = overtaken  # type: ignore[method-assign]  # runs the other append in between
        try:
            append_as(log, "consumer", 5, b"old life")
        except FollowerFencedError as error:
            outcome.append(error)

        assert written.is_set()
        assert outcome
        log.opened.appends.append_internal([internal_record(b"end")], sync=True, born_host=BORN_HOST)
        assert [record.body for record in all_records(log)] == [b"new life", b"end"]


def test_of_two_lives_that_begin_with_one_epoch_only_the_first_may_append() -> None:
    """Both read the log before either had appended, in one millisecond or behind a clock that was set back."""
    fence = FollowerFence()
    fence.enter("consumer", 5, begins=True)
    with pytest.raises(FollowerFencedError) as refused:
        fence.enter("consumer", 5, begins=True)
    assert refused.value.metadata["currentEpoch"] == "5"
    fence.enter("consumer", 6, begins=True)  # what a life does that is refused
    with pytest.raises(FollowerFencedError):
        fence.enter("consumer", 5)
