"""When a leader takes its disk for stuck; tests/cluster/test_disks.py has a real one.

What a leader believes of its followers, and what that confirms; the followers are scripts of requests.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication.leader_side import GATHER_BYTES_MAX, HEARTBEAT_SECONDS, DiskWatch, LeaderSide
from commitlog_svc.replication.replicated_log import ReplicaLimits
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import FlushFailedError, InvalidArgumentError, NotConfirmedError, NotLeaderError, StoreError
from tests.commitlog_svc.replication.fixed_leadership import FixedLeadership
from tests.commitlog_svc.support import append, make_log, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

SECONDS_MAX = 5.0
STEP_SECONDS = 0.1


def looks(until: float, flushed_offset: int = 100, *, is_another_ahead: bool = True) -> list[tuple[float, int, bool]]:
    """Ten looks a second, up to a time."""
    return [(number * STEP_SECONDS, flushed_offset, is_another_ahead) for number in range(round(until / STEP_SECONDS))]


def stuck_at(looked: Iterable[tuple[float, int, bool]]) -> list[float]:
    watch = DiskWatch(SECONDS_MAX, 0.0)
    return [round(now, 1) for now, offset, is_ahead in looked if watch.is_stuck(now, offset, is_ahead)]


def test_a_flush_that_stands_still_while_another_replica_is_ahead_is_stuck_once() -> None:
    assert stuck_at(looks(20.0)) == [5.1]


@pytest.mark.parametrize(
    "looked",
    [
        pytest.param(looks(20.0, is_another_ahead=False), id="nobody has more, so all disks may be slow"),
        pytest.param([(now, round(now / 4), True) for now, *_ in looks(20.0)], id="it is slow and moves"),
        pytest.param([*looks(4.9), (4.9, 100, False), *((5 + now, 100, True) for now, *_ in looks(4.9))], id="in time"),
        pytest.param([*looks(4.0), (14.0, 100, True), (15.0, 100, True)], id="this process stood still itself"),
    ],
)
def test_a_disk_that_is_slow_or_not_alone_is_not_stuck(looked: list[tuple[float, int, bool]]) -> None:
    assert stuck_at(looked) == []


BROKER = "broker-a"
FILE_BYTES = 16384


class OpenGate:
    """Lets every append in; what waits is for the test."""

    leads = True

    def refuse(self) -> None: ...
    def refuse_replicated(self) -> None: ...
    def check_written(self, end_offset: int) -> None: ...
    def wait_replicated(self, end_offset: int) -> None: ...


class ScriptedFollower:
    """The other end of one stream."""

    def __init__(self, leader: LeaderSide, **hello: Any) -> None:
        values = {"replica": "r2", "broker_name": BROKER, "leader_epoch": 1} | hello
        self._requests: queue.Queue[pb.ReplicateRequest | None] = queue.Queue()
        self._requests.put(pb.ReplicateRequest(hello=pb.ReplicateRequest.Hello(**values)))
        self._responses = leader.serve(iter(self._requests.get, None))
        self.start = next(self._responses).start
        self.received = bytearray()

    def take(self, end_offset: int) -> pb.ReplicateResponse:
        """Responses until the log was received up to an offset; the last one."""
        while True:
            response = next(self._responses)
            self.received += response.log_bytes.data
            if self.start.begin_offset + len(self.received) >= end_offset:
                return response

    def until_failure(self) -> StoreError:
        with pytest.raises(StoreError) as failed:
            for _ in range(1000):
                next(self._responses)
        return failed.value

    def report(self, durable_offset: int, answered_heartbeat: int = 0) -> None:
        report = pb.ReplicateRequest.Report(durable_offset=durable_offset, answered_heartbeat=answered_heartbeat)
        self._requests.put(pb.ReplicateRequest(report=report))

    def go(self) -> None:
        """Breaks the stream."""
        self._responses.close()

    def hang_up(self) -> None:
        self._requests.put(None)


class Bench:
    """A leader of epoch 1 with a log."""

    def __init__(self, root: Path, *in_sync: str, **limits: Any) -> None:
        self.log: CommitLog = make_log(root, file_size_bytes=FILE_BYTES)
        self.log.join_replicas(OpenGate())
        self.log.recover()
        self.parts = self.log.replicated()
        self.parts.epochs.begin(1, self.end_offset)
        self.leadership = FixedLeadership()
        self.leadership.set(in_sync=frozenset(in_sync or ("r1",)))
        self.leader = LeaderSide("r1", BROKER, 1, self.parts, self.leadership, ReplicaLimits(**limits))
        self.leader.start()

    @property
    def end_offset(self) -> int:
        return self.log.status.end_offset

    @property
    def confirmed(self) -> int:
        return self.log.confirm.confirm_offset

    def append(self, body: bytes = b"x" * 500) -> int:
        return append(self.log, new_message(body))[-1].end_offset


@contextmanager
def bench(root: Path, *in_sync: str, **limits: Any) -> Iterator[Bench]:
    made = Bench(root, *in_sync, **limits)
    try:
        yield made
    finally:
        made.leader.close()
        made.log.close()


def test_the_confirm_offset_is_the_least_of_the_in_sync_replicas_and_moves_with_their_reports(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        ends = [its.append() for _ in range(3)]
        follower = ScriptedFollower(its.leader)
        follower.take(ends[2])
        assert its.confirmed == 0
        follower.report(ends[2])
        wait_until(lambda: its.confirmed == ends[2], "all is confirmed")
        end = its.append()
        follower.take(end)
        assert its.confirmed == ends[2]
        follower.report(end)
        wait_until(lambda: its.confirmed == end, "the last one is confirmed")


@pytest.mark.parametrize("too_much", [1, 500, 1 << 40])
def test_a_report_of_more_than_was_sent_ends_the_stream_and_confirms_nothing(tmp_path: Path, too_much: int) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        end = its.append()
        follower = ScriptedFollower(its.leader)
        follower.take(end)
        follower.report(end + too_much)
        assert isinstance(follower.until_failure(), InvalidArgumentError)
        assert its.confirmed == 0


def test_a_report_inside_a_request_confirms_only_the_requests_before(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        first = its.append()
        follower = ScriptedFollower(its.leader)
        follower.take(first)
        second = its.append()
        follower.take(second)
        follower.report(second - 1)
        wait_until(lambda: its.confirmed == first, "the first one is confirmed")
        assert [row.durable_offset for row in its.leader.replicas() if row.name == "r2"] == [second - 1]


def test_a_report_that_goes_back_or_answers_what_was_not_asked_ends_the_stream(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        end = its.append()
        for reports in ([(end, 0), (0, 0)], [(end, 1 << 40)]):
            follower = ScriptedFollower(its.leader)
            follower.take(end)
            for report in reports:
                follower.report(*report)
            assert isinstance(follower.until_failure(), InvalidArgumentError)


def test_nothing_is_confirmed_while_the_lead_may_be_lost_and_all_of_it_afterwards(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        end = its.append()
        follower = ScriptedFollower(its.leader)
        response = follower.take(end)
        its.leadership.acknowledges = False
        follower.report(end, response.heartbeat)
        wait_until(lambda: its.leadership.promises == ["r2"], "the promise came")
        assert its.confirmed == 0
        with pytest.raises(NotLeaderError):
            its.leader.refuse()
        with pytest.raises(NotConfirmedError):
            its.leader.check_written(end)
        its.leadership.acknowledges = True
        wait_until(lambda: its.confirmed == end, "it is confirmed")


def test_a_replica_that_lags_counts_until_the_coordinator_has_stored_the_smaller_set(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=0.5) as its:
        its.leadership.may_change.clear()
        follower = ScriptedFollower(its.leader)
        end = its.append()
        follower.take(end)
        wait_until(lambda: its.leadership.asked, "the leader wants a smaller set")
        assert set(its.leadership.asked) == {frozenset({"r1"})}
        assert its.confirmed == 0
        its.leadership.may_change.set()
        wait_until(lambda: its.confirmed == end, "the leader confirms alone")
        assert its.leadership.view.in_sync == {"r1"}


def test_a_replica_that_has_caught_up_counts_before_the_coordinator_has_stored_the_larger_set(tmp_path: Path) -> None:
    with bench(tmp_path) as its:
        first = its.append()
        wait_until(lambda: its.confirmed == first, "the leader confirms alone")
        its.leadership.may_change.clear()
        follower = ScriptedFollower(its.leader)
        heartbeat = follower.take(first).heartbeat
        follower.report(first, heartbeat)
        wait_until(lambda: its.leader._pending == {"r1", "r2"}, "it is about to be taken in")
        second = its.append()
        with its.leader.lock:
            its.leader._confirm()
            is_pending = bool(its.leader._pending)
            assert not is_pending or its.confirmed == first
        its.leadership.may_change.set()
        wait_until(lambda: its.leadership.view.in_sync == {"r1", "r2"}, "it is in sync")
        follower.take(second)
        follower.report(second)
        wait_until(lambda: its.confirmed == second, "both have it")


def test_a_replica_that_lost_what_it_had_confirmed_leaves_the_set_at_once(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=60.0) as its:
        end = its.append()
        follower = ScriptedFollower(its.leader)
        follower.take(end)
        follower.report(end)
        wait_until(lambda: its.confirmed == end, "both have it")
        ScriptedFollower(its.leader)  # with an empty disk
        wait_until(lambda: its.leadership.view.in_sync == {"r1"}, "it left")


def test_the_record_names_the_store_with_which_a_replica_came_in(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=60.0) as its:
        its.leadership.set(store_ids={"r1": "a", "r2": "lost"})
        end = its.append()
        follower = ScriptedFollower(its.leader, store_id="new")
        follower.take(end)
        assert its.leadership.view.store_ids["r2"] == "lost"
        follower.report(end)
        wait_until(lambda: its.leadership.view.store_ids == {"r1": "a", "r2": "new"}, "it has everything again")


def test_a_replica_that_lacks_what_the_leader_before_confirmed_does_not_come_in(tmp_path: Path) -> None:
    """It came in at once: a new leader may not know yet how much was confirmed before it led."""
    with bench(tmp_path, "r1", lag_seconds_max=60.0) as its:
        first = its.append()
        last = its.append()
        its.leader._begin_offset = last
        its.leadership.acknowledges = False  # nothing is confirmed here yet
        follower = ScriptedFollower(its.leader)
        follower.take(last)
        follower.report(first)
        its.leader._keep_in_sync()
        assert its.leadership.asked == []
        follower.report(last)
        wait_until(lambda: its.leadership.view.in_sync == {"r1", "r2"}, "it has everything")


def test_a_replica_whose_streams_break_again_and_again_leaves_the_set_and_holds_nobody_up(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=0.5) as its:
        end = its.append()
        its.leader.clock = lambda: its.leadership.now() + 0.6
        ScriptedFollower(its.leader).go()
        its.leader._keep_in_sync()
        assert set(its.leadership.asked) == {frozenset({"r1"})}
        wait_until(lambda: its.confirmed == end, "the leader confirms alone")


def test_a_leader_that_stood_still_keeps_its_replicas_until_they_had_time_to_speak(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=2.0) as its:
        end = its.append()
        follower = ScriptedFollower(its.leader)
        follower.report(end, follower.take(end).heartbeat)
        wait_until(lambda: its.confirmed == end, "both have it")
        its.leader.clock = lambda: its.leadership.now() + 5.5
        its.leader._keep_in_sync()
        assert its.leadership.asked == []
        wait_until(lambda: its.leadership.view.in_sync == {"r1"}, "it left, since it stays silent")


def test_a_leader_that_may_not_acknowledge_takes_nobody_out_of_the_set(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=0.5) as its:
        its.leadership.acknowledges = False
        its.leader.clock = lambda: its.leadership.now() + 0.9
        its.leader._keep_in_sync()
        assert its.leadership.asked == []
        its.leadership.acknowledges = True
        wait_until(lambda: its.leadership.view.in_sync == {"r1"}, "it left")


def test_what_a_follower_says_it_has_counts_from_its_first_report_on(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        end = its.append()
        hello = {"end_offset": end, "epochs": [pb.Epoch(epoch=1, begin_offset=0)], "file_size_bytes": FILE_BYTES}
        follower = ScriptedFollower(its.leader, **hello)
        third = ScriptedFollower(its.leader, replica="r3", **hello)
        assert follower.start.agreed_offset == third.start.agreed_offset == end
        its.leader._keep_in_sync()
        its.leader.moved()
        assert (its.confirmed, its.leadership.asked) == (0, [])
        for one in (follower, third):
            one.report(end, one.take(end).heartbeat)
        wait_until(lambda: its.confirmed == end, "both have said that they have it")
        wait_until(lambda: its.leadership.view.in_sync == {"r1", "r2", "r3"}, "the third one is taken in")


def test_what_an_old_stream_of_a_replica_still_sends_does_not_count_for_its_new_one(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        its.append()
        old = ScriptedFollower(its.leader)
        assert next(old._responses).config_files  # the log's bytes come behind these
        ScriptedFollower(its.leader)
        assert next(old._responses).log_bytes.data
        assert its.leader._replicas["r2"].sent_offset == 0


@pytest.mark.parametrize(
    ("hello", "field", "words"),
    [
        ({"broker_name": "broker-b"}, "broker_name", "this is the shard 'broker-a'"),
        ({"replica": "r1"}, "replica", "each replica needs a replica_name of its own"),
        ({"replica": ""}, "replica", "replica_name"),
        ({"file_size_bytes": 4096, "end_offset": 100}, "file_size_bytes", "files of 4096 bytes, this one of 16384"),
        ({"epochs": [pb.Epoch(epoch=1, begin_offset=5), pb.Epoch(epoch=1, begin_offset=1)]}, "epochs", "rise"),
        ({"first_offset": 10, "end_offset": 5}, "epochs", "rise"),
    ],
)
def test_a_hello_that_is_none_of_this_log_is_refused_with_words(tmp_path: Path, hello, field: str, words: str) -> None:
    with bench(tmp_path) as its:
        its.append()
        with pytest.raises(InvalidArgumentError, match=words) as refused:
            ScriptedFollower(its.leader, **hello)
        assert refused.value.metadata["field"] == field


def test_a_follower_that_knows_a_later_epoch_is_refused_and_the_leadership_hears_of_it(tmp_path: Path) -> None:
    with bench(tmp_path) as its:
        with pytest.raises(NotLeaderError):
            ScriptedFollower(its.leader, epochs=[pb.Epoch(epoch=7, begin_offset=0)])
        assert its.leadership.known_epoch == 7
        with pytest.raises(NotLeaderError):
            ScriptedFollower(its.leader, leader_epoch=2)


def test_an_append_waits_for_min_in_sync_replicas_and_says_when_the_lead_is_lost(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", min_in_sync=2) as its:
        end = its.append()
        wait_until(lambda: its.confirmed == end, "the leader confirms alone")
        waiting = _in_thread(lambda: its.leader.wait_replicated(end))
        follower = ScriptedFollower(its.leader)
        heartbeat = follower.take(end).heartbeat
        assert waiting.empty()
        follower.report(end, heartbeat)
        assert waiting.get(timeout=WAIT_SECONDS_MAX) is None
        later = _in_thread(lambda: its.leader.wait_replicated(its.append()))
        its.leader.close()
        assert isinstance(later.get(timeout=WAIT_SECONDS_MAX), NotConfirmedError)


def test_an_append_that_waits_for_replicas_hears_that_the_disk_here_has_failed(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2") as its:
        end = its.append()
        waiting = _in_thread(lambda: its.leader.wait_replicated(end))
        its.parts.commits.fail(FlushFailedError("the disk is gone"))
        assert isinstance(waiting.get(timeout=WAIT_SECONDS_MAX), FlushFailedError)


def test_what_is_written_while_two_pieces_are_not_reported_is_gathered_into_one(tmp_path: Path) -> None:
    with bench(tmp_path) as its:
        follower = ScriptedFollower(its.leader)
        first = its.append()
        follower.take(first)
        second = its.append()
        follower.take(second)
        third, fourth = its.append(), its.append()
        for _ in range(3):  # confirm offsets and heartbeats
            assert not next(follower._responses).log_bytes.data
        follower.report(first)
        piece = next(response for response in follower._responses if response.log_bytes.data).log_bytes
        assert (piece.offset, len(piece.data), piece.settle_offset) == (second, fourth - second, fourth)
        assert second < third < fourth


def test_a_follower_that_is_far_behind_does_not_wait_for_its_own_reports(tmp_path: Path) -> None:
    with bench(tmp_path) as its:
        ends = [its.append() for _ in range(2)]
        follower = ScriptedFollower(its.leader)
        follower.take(ends[-1])
        body = b"x" * 10_000
        for _ in range(2 + GATHER_BYTES_MAX // len(body)):
            end = its.append(body)
        follower.take(end - GATHER_BYTES_MAX)


def test_a_new_leader_is_ready_once_all_that_the_former_one_may_have_shown_is_confirmed(tmp_path: Path) -> None:
    with bench(tmp_path, "r1", "r2", lag_seconds_max=60.0) as its:
        assert its.leader.is_ready
        end = its.append()
        its.leader.close()
        its.parts.epochs.begin(2, end)
        its.leadership.set(epoch=2)
        its.leader = LeaderSide("r1", BROKER, 2, its.parts, its.leadership, ReplicaLimits())
        its.leader.start()
        follower = ScriptedFollower(its.leader, leader_epoch=2)
        follower.take(end)
        assert not its.leader.is_ready
        follower.report(end)
        wait_until(lambda: its.leader.is_ready, "it is ready")
        assert its.confirmed == end


def test_a_file_of_config_that_is_gone_does_not_keep_the_stream_busy(tmp_path: Path) -> None:
    with bench(tmp_path) as its:
        end = its.append()
        its.log.opened.config_files.write("consumerOffset.json", b"{}")
        (tmp_path / "config" / "consumerOffset.json").unlink()
        follower = ScriptedFollower(its.leader)
        follower.take(end)
        began = its.leadership.now()
        for _ in range(4):
            assert not next(follower._responses).config_files
        # The first one may tell of the confirm offset, at once; the others are heartbeats.
        assert its.leadership.now() - began > 2 * HEARTBEAT_SECONDS


def test_the_bandwidth_of_a_follower_is_limited(tmp_path: Path) -> None:
    with bench(tmp_path, bytes_per_second_max=20_000) as its:
        ends = [its.append() for _ in range(60)]
        follower = ScriptedFollower(its.leader)
        began = its.leadership.now()
        follower.take(ends[-1])
        # The first piece, of at most one file, goes at once.
        assert its.leadership.now() - began >= (ends[-1] - FILE_BYTES) / 20_000 * 0.9


def _in_thread(work: Any) -> "queue.Queue[StoreError | None]":
    outcome: queue.Queue[StoreError | None] = queue.Queue()

    def run() -> None:
        try:
            work()
        except StoreError as error:
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=run, daemon=True).start()
    return outcome
