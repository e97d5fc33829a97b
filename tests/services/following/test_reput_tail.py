"""The tail: every record at least once, in order, over broken streams, restarts, damaged records and lost offsets."""

import threading

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.backoff import Backoff
from services.calling.commitlog import CommitLogClient
from services.following.reput_tail import ReputTail
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, StoreRecoveringError
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX

LOG_END = 1_000
RECORD_SIZE_BYTES = 100


def batch_at(offset: int) -> pb.ReputResponse:
    """One record, or the heartbeat at the end of the log."""
    response = pb.ReputResponse(next_offset=offset, log_first_offset=0, log_end_offset=LOG_END)
    if offset < LOG_END:
        response.requests.add(topic="orders", commit_log_offset=offset, record_size_bytes=RECORD_SIZE_BYTES)
        response.next_offset = offset + RECORD_SIZE_BYTES
    return response


def follow_log(request, context):
    offset = max(0, request.start_offset)
    beat = threading.Event()
    while context.is_active():
        response = batch_at(offset)
        yield response
        if offset == LOG_END:
            beat.wait(0.05)
        offset = response.next_offset


class Builder:
    """Keeps what it is given, in order, and stops the tail at the end of the log."""

    def __init__(self, client: CommitLogClient, **options) -> None:
        self.applied: list[int] = []
        self.tail = ReputTail(client, self.start_offset, self.apply, **options)

    def start_offset(self) -> int:
        return self.applied[-1] + RECORD_SIZE_BYTES if self.applied else -1

    def apply(self, batch) -> bool:
        self.applied += batch.columns.commit_log_offsets.tolist() if batch.columns else []
        if batch.next_offset == LOG_END:
            self.tail.stop()
        return True


ALL_OFFSETS = list(range(0, LOG_END, RECORD_SIZE_BYTES))


def test_a_tail_hands_over_the_whole_log_in_order():
    with commit_log_server(reput=follow_log) as server:
        builder = Builder(CommitLogClient(server.address))
        builder.tail.run()

    assert builder.applied == ALL_OFFSETS


def test_a_tail_asks_for_the_pause_that_its_follower_wants():
    asked = []

    def note_pause(request, context):
        asked.append(request.gather_millis)
        yield from follow_log(request, context)

    with commit_log_server(reput=note_pause) as server:
        Builder(CommitLogClient(server.address)).tail.run()
        Builder(CommitLogClient(server.address), gather_millis=50).tail.run()

    assert asked == [0, 50]


def test_a_tail_goes_on_where_it_was_when_streams_break():
    starts = []

    def break_after_three(request, context):
        starts.append(request.start_offset)
        for count, response in enumerate(follow_log(request, context)):
            if count == 3:
                raise StoreRecoveringError("restarting")
            yield response

    with commit_log_server(reput=break_after_three) as server:
        builder = Builder(CommitLogClient(server.address))
        builder.tail.run()

    assert builder.applied == ALL_OFFSETS
    assert starts == [-1, 300, 600, 900]


def test_a_tail_waits_for_a_service_that_is_not_there_yet(tmp_path):
    address = f"unix:{tmp_path}/s"
    builder = Builder(CommitLogClient(address))
    follower = threading.Thread(target=builder.tail.run)
    follower.start()
    while not builder.tail.last_error:
        follower.join(0.01)
    with commit_log_server(address, reput=follow_log):
        follower.join(WAIT_SECONDS_MAX)

    assert builder.applied == ALL_OFFSETS
    assert builder.tail.last_error == ""


def test_a_builder_that_takes_no_batch_is_asked_anew_where_to_start():
    with commit_log_server(reput=follow_log) as server:
        builder = Builder(CommitLogClient(server.address))
        apply = builder.apply

        refused = []

        def start_over_once(batch):
            if len(builder.applied) == 4 and not refused:
                refused.append(batch)
                builder.applied.clear()
                return False
            return apply(batch)

        builder.tail = ReputTail(CommitLogClient(server.address), builder.start_offset, start_over_once)
        builder.tail.run()

    assert builder.applied == ALL_OFFSETS


class NoPause(Backoff):
    """Notes how long it would have waited."""

    def __init__(self) -> None:
        super().__init__(uniform=lambda low, high: high)
        self.pauses: list[float] = []

    def next_seconds(self, max_seconds=None):
        self.pauses.append(super().next_seconds(max_seconds))
        return 0.0


def test_streams_that_break_behind_their_first_answer_are_asked_for_after_growing_pauses():
    """The first answer at the log's end comes at once: it alone is no sign that the stream is good."""

    def ends_at_once(request, context):
        yield batch_at(LOG_END)
        raise StoreRecoveringError("the log is closing")

    applied = []

    def apply(batch) -> bool:
        applied.append(batch.next_offset)
        if len(applied) == 6:
            tail.stop()
        return True

    backoff = NoPause()
    with commit_log_server(reput=ends_at_once) as server:
        # A clock that stands still: however long the machine takes, no stream lives long.
        tail = ReputTail(CommitLogClient(server.address), lambda: LOG_END, apply, backoff=backoff, clock=lambda: 0.0)
        tail.run()

    # The very first is news: nobody knew before that the log ends there.
    assert backoff.pauses == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_a_damaged_record_is_asked_for_again_after_growing_pauses():
    """Good batches before it do not shorten them: the builder is shown its last record each time."""
    starts, answers = [], []
    backoff = NoPause()

    def damaged_at_400(request, context):
        starts.append(request.start_offset)
        for response in follow_log(request, context):
            if response.next_offset == 500 and len(starts) < 6:
                raise RecordCorruptedError("record at 400 is damaged", commitLogOffset=400)
            yield response

    with commit_log_server(reput=damaged_at_400) as server:
        builder = Builder(
            CommitLogClient(server.address),
            on_broken=lambda error: answers.append(error.message),
            backoff=backoff,
        )
        builder.tail._start_offset = lambda: builder.applied[-1] if builder.applied else -1
        builder.tail.run()

    assert starts == [-1, *[300] * 5]
    assert backoff.pauses == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert answers == ["record at 400 is damaged"] * 5
    assert sorted(set(builder.applied)) == ALL_OFFSETS


def test_an_offset_that_the_log_lost_ends_the_tail_unless_somebody_cuts_back():
    def out_of_range_beyond_end(request, context):
        if request.start_offset > LOG_END:
            raise OffsetOutOfRangeError("beyond the end", firstOffset=0, lastOffset=LOG_END)
        yield from follow_log(request, context)

    with commit_log_server(reput=out_of_range_beyond_end) as server:
        client = CommitLogClient(server.address)
        with pytest.raises(OffsetOutOfRangeError):
            ReputTail(client, lambda: 5_000, lambda batch: True).run()

        told = []
        builder = Builder(client, on_lost=told.append)
        builder.tail._start_offset = lambda: -1 if told else 5_000
        builder.tail.run()

    assert told[0].metadata == {"firstOffset": "0", "lastOffset": str(LOG_END)}
    assert builder.applied == ALL_OFFSETS


def test_a_bug_in_the_builder_ends_the_tail():
    def broken(batch):
        raise ZeroDivisionError

    with commit_log_server(reput=follow_log) as server, pytest.raises(ZeroDivisionError):
        ReputTail(CommitLogClient(server.address), lambda: -1, broken).run()


def test_a_waiting_tail_stops_when_its_event_is_set():
    stop_event, waiting = threading.Event(), threading.Event()

    def silent(request, context):
        yield batch_at(LOG_END)
        while context.is_active():
            waiting.set()
            stop_event.wait(0.05)

    with commit_log_server(reput=silent) as server:
        tail = ReputTail(CommitLogClient(server.address), lambda: -1, lambda batch: True, stop_event=stop_event)
        follower = threading.Thread(target=tail.run)
        follower.start()
        assert waiting.wait(WAIT_SECONDS_MAX)
        stop_event.set()
        follower.join(WAIT_SECONDS_MAX)

    assert not follower.is_alive()
