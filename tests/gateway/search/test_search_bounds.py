"""What a search costs at most: it ends soon after its caller has gone or its time is over, whatever it is at."""

import threading
from dataclasses import replace

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shards import FanOut
from gateway.search.cel_sandbox import CelProcess, CelSandbox
from gateway.search.filter import Conditions
from gateway.search.message_view import MessageView
from gateway.search.question import DECIDING_SECONDS, Budgets, SearchQuestion
from gateway.search.scan import CallerGoneError
from gateway.search.search_messages import COUNT_SECONDS_MAX
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.serving.calls.cancellation import Cancellation
from store.errors import DeadlineExceededError, ServiceUnavailableError
from tests.gateway.search.searching import Searcher, TaggedShard, scanned_positions
from tests.gateway.search.test_search_messages import ALL, TOPIC, Clock, found_offsets, one_shard
from tests.support.waiting import WAIT_SECONDS_MAX


class HeldListShard(TaggedShard):
    """A question for the queues waits until it is let go."""

    def __init__(self, records) -> None:
        super().__init__(records)
        self.asked = threading.Event()
        self.release = threading.Event()

    def list_queues(self, topic, deadline):
        self.asked.set()
        assert self.release.wait(60)
        return super().list_queues(topic, deadline)


class LateListShard(TaggedShard):
    """The queues are not told in time: the first question takes all of the time that it is given."""

    def __init__(self, records, clock: Clock) -> None:
        super().__init__(records)
        self.clock = clock
        self.allowed_seconds: list[float] = []

    def list_queues(self, topic, deadline):
        self.allowed_seconds.append(deadline.remaining_seconds())
        if len(self.allowed_seconds) == 1:
            self.clock.seconds += self.allowed_seconds[0]
            raise DeadlineExceededError("too late")
        return super().list_queues(topic, deadline)


def gone_while_asked(searcher: Searcher, shard: HeldListShard, **arguments) -> CallerGoneError:
    """What a search says whose caller goes while the shard holds its answer back, before it gives it."""
    cancellation = Cancellation()
    canceller = threading.Thread(target=lambda: (shard.asked.wait(WAIT_SECONDS_MAX), cancellation.cancel()))
    canceller.start()
    # So that a search that waits for the shard fails instead of hanging.
    late = threading.Timer(20, shard.release.set)
    late.start()
    try:
        with pytest.raises(CallerGoneError) as gone:
            searcher.search(cancellation=cancellation, **arguments)
        assert not shard.release.is_set(), "it waited for the shard"
        assert gone.value.pending is not None
        assert not gone.value.pending.done()
    finally:
        late.cancel()
        shard.release.set()
        canceller.join(WAIT_SECONDS_MAX)
    return gone.value


def test_a_count_of_the_positions_kept_a_search_whose_caller_had_gone(records, sandbox):
    threads = FanOut(2)
    shard = HeldListShard(records)
    try:
        gone = gone_while_asked(Searcher({"a": shard}, threads, sandbox), shard, question=ALL, count_total=True)
        gone.pending.exception(WAIT_SECONDS_MAX)
    finally:
        threads.close()


@pytest.mark.parametrize("queue_id", [None, 0])
def test_whether_there_is_such_a_place_kept_a_search_whose_caller_had_gone(records, sandbox, queue_id):
    class HeldTopicsShard(HeldListShard):
        def list_queues(self, topic, deadline):
            return TaggedShard.list_queues(self, topic, deadline)

        def list_topics(self, request, deadline):
            self.asked.set()
            assert self.release.wait(60)
            return super().list_topics(request, deadline)

    threads = FanOut(2)
    shard = HeldTopicsShard(records)
    try:
        question = SearchQuestion("no-such-topic", queue_id=queue_id)
        gone = gone_while_asked(Searcher({"a": shard}, threads, sandbox), shard, question=question)
        gone.pending.exception(WAIT_SECONDS_MAX)
    finally:
        threads.close()


def test_a_count_that_takes_too_long_is_given_up_and_the_search_goes_on(records, fan_out, sandbox):
    clock = Clock()
    shard = LateListShard(records, clock)
    searcher = Searcher({"a": shard, "b": TaggedShard(records)}, fan_out, sandbox)
    answer = searcher.search(ALL, Budgets(), page_size=9, count_total=True, deadline=Deadline.after(60, clock))

    assert shard.allowed_seconds[0] <= COUNT_SECONDS_MAX
    assert (answer.total_count, answer.passed_count, len(answer.entries)) == (0, 0, 9)
    later = searcher.search(
        ALL, page_size=9, page_token=answer.next_page_token, count_total=True, deadline=Deadline.after(60, clock)
    )
    assert (later.total_count, later.passed_count) == (0, 0)


def test_a_shard_that_is_down_is_left_out_of_the_count(records, fan_out, sandbox):
    down = TaggedShard(records, failures={"list_queues": ServiceUnavailableError("down")})
    searcher = Searcher({"a": TaggedShard(records), "b": down}, fan_out, sandbox)

    assert searcher.search(ALL, page_size=9, count_total=True).total_count == sum(r.topic == TOPIC for r in records)


def slow_bodies(monkeypatch, clock: Clock, seconds: float) -> list[MessageView]:
    """Every look into a body takes so long; which were looked into."""
    looked: list[MessageView] = []

    def inflated_body(view: MessageView) -> bytes:
        looked.append(view)
        clock.seconds += seconds
        return b"needle"

    monkeypatch.setattr(MessageView, "inflated_body", inflated_body)
    return looked


@pytest.mark.parametrize(
    "conditions", [Conditions(needle=b"needle"), Conditions(needle=b"none"), Conditions(cel="size(message.body) == 6")]
)
def test_bodies_were_inflated_for_long_after_the_time_was_over(records, fan_out, sandbox, monkeypatch, conditions):
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0][:60]
    searcher, _ = one_shard(log, fan_out, sandbox)
    clock = Clock()
    looked = slow_bodies(monkeypatch, clock, 0.028)
    token, pages, seconds = "", [], []
    while not pages or token:
        begun = clock.seconds
        deadline = Deadline.after(100, clock)
        question = replace(ALL, conditions=conditions)
        pages.append(searcher.search(question, Budgets(max_millis=140), page_token=token, deadline=deadline))
        token = pages[-1].next_page_token
        seconds.append(clock.seconds - begun)

    assert max(seconds) < 0.140 + 0.028 + 0.001
    assert {page.stop for page in pages[:-1]} == {gateway_pb.SEARCH_STOP_TIME}
    positions = scanned_positions(pages)
    assert len(positions) == len(set(positions)) == len(log)
    matching = [] if conditions.needle == b"none" else [record.commit_log_offset for record in log]
    assert [offset for _, offset in found_offsets(pages)] == matching
    assert len(looked) < 2 * len(log), "most are looked into once"


def test_a_read_that_takes_all_the_time_is_not_repeated_for_every_message(records, fan_out, sandbox, monkeypatch):
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0][:60]
    clock = Clock()

    class LateShard(TaggedShard):
        def get_many(self, commit_log_offsets, body_bytes_max, deadline):
            clock.seconds += 1.0
            return super().get_many(commit_log_offsets, body_bytes_max, deadline)

    shard = LateShard(log)
    slow_bodies(monkeypatch, clock, DECIDING_SECONDS / 10)
    searcher = Searcher({"a": shard}, fan_out, sandbox)
    question = replace(ALL, conditions=Conditions(needle=b"needle"))
    page = searcher.search(question, Budgets(max_millis=140), deadline=Deadline.after(100, clock))

    assert 10 <= len(page.entries) <= 11


def test_a_start_of_the_process_that_evaluates_took_the_time_of_the_search(records, fan_out):
    clock = Clock()

    def slow_start() -> CelProcess:
        clock.seconds += 5.0
        return CelProcess()

    own = CelSandbox(1, slow_start)
    try:
        searcher, _ = one_shard(records, fan_out, own)
        question = replace(ALL, conditions=Conditions(cel="message.queue_id >= 0"))
        page = searcher.search(question, Budgets(max_millis=140), page_size=1000, deadline=Deadline.after(100, clock))
    finally:
        own.close()

    assert (clock.seconds, page.stop) == (5.0, gateway_pb.SEARCH_STOP_END)
    assert len(page.entries) == sum(record.topic == TOPIC for record in records)


def test_a_caller_that_goes_while_a_batch_for_an_expression_is_filled_is_heard(records, fan_out, sandbox, monkeypatch):
    searcher, _ = one_shard(records, fan_out, sandbox)
    cancellation = Cancellation()
    looked: list[MessageView] = []

    def inflated_body(view: MessageView) -> bytes:
        looked.append(view)
        cancellation.cancel()
        return b""

    monkeypatch.setattr(MessageView, "inflated_body", inflated_body)
    question = replace(ALL, conditions=Conditions(cel="size(message.body) == 0"))
    with pytest.raises(CallerGoneError):
        searcher.search(question, cancellation=cancellation)

    assert len(looked) == 1
