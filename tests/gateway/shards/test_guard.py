"""A shard that hangs takes no more than a few threads; one that is slow, and callers in a hurry, change nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.ports.deadline import Deadline, ran_out_of_time
from gateway.shards.guard import HURRY_SECONDS, PATIENCE_SECONDS, ShardGuard, guarded
from store.errors import DeadlineExceededError, RecordNotFoundError, ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard

THREAD_COUNT = 8
WAIT_SECONDS_MAX = 30


class Shard:
    """Calls that wait until they are let go."""

    def __init__(self):
        self.now = 100.0
        self.guard = ShardGuard("index", "b", THREAD_COUNT, lambda: self.now)
        self.begun = threading.Semaphore(0)
        self.release = threading.Event()
        self.error = None

    def hold(self):
        self.begun.release()
        assert self.release.wait(WAIT_SECONDS_MAX)
        if self.error is not None:
            raise self.error
        return "answer"

    def begin(self, pool):
        call = pool.submit(self.guard.call, self.hold)
        assert self.begun.acquire(timeout=WAIT_SECONDS_MAX)
        return call


@pytest.fixture
def shard():
    shard = Shard()
    yield shard
    shard.release.set()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(THREAD_COUNT) as pool:
        yield pool


def test_while_a_call_waits_for_long_no_other_is_begun_and_afterwards_all_are(shard, pool):
    calls = [shard.begin(pool)]
    shard.now += PATIENCE_SECONDS
    calls.append(shard.begin(pool))  # not yet
    shard.now += 0.1
    with pytest.raises(
        ServiceUnavailableError, match=r"index of shard b does not answer: 2 calls wait for it, one for 2.1 s"
    ):
        shard.guard.call(shard.hold)

    shard.release.set()
    assert [call.result() for call in calls] == ["answer"] * 2
    assert shard.guard.call(shard.hold) == "answer"


def test_half_of_the_threads_are_enough_unless_calls_are_soon_over(shard, pool):
    calls = [shard.begin(pool) for _ in range(THREAD_COUNT // 2 + 1)]
    shard.now += HURRY_SECONDS + 0.01
    with pytest.raises(ServiceUnavailableError):
        shard.guard.call(shard.hold)
    shard.release.set()
    assert [call.result() for call in calls] == ["answer"] * len(calls)


def test_behind_a_call_that_ended_late_one_at_a_time_finds_out(shard, pool):
    shard.error = DeadlineExceededError("late")
    call = shard.begin(pool)
    shard.now += PATIENCE_SECONDS
    shard.release.set()
    with pytest.raises(ServiceUnavailableError, match=r"index of shard b did not answer for 2\.0 s") as raised:
        call.result()
    assert raised.value.metadata == {"service": "index", "brokerName": "b"}
    shard.release.clear()

    shard.error = None
    probe = shard.begin(pool)
    with pytest.raises(ServiceUnavailableError):
        shard.guard.call(shard.hold)
    shard.release.set()
    assert probe.result() == "answer"
    shard.release.clear()
    both = [shard.begin(pool), shard.begin(pool)]
    shard.release.set()
    assert [call.result() for call in both] == ["answer"] * 2


def test_a_caller_without_time_says_nothing_about_the_shard(shard, pool):
    shard.error = DeadlineExceededError("late")
    calls = [shard.begin(pool)]
    shard.release.set()
    with pytest.raises(DeadlineExceededError):
        calls[0].result()
    shard.release.clear()
    shard.error = None

    calls = [shard.begin(pool), shard.begin(pool)]
    shard.release.set()
    assert [call.result() for call in calls] == ["answer"] * 2


def test_a_failure_is_an_answer(shard, pool):
    shard.error = RecordNotFoundError("nothing there")
    call = shard.begin(pool)
    shard.now += PATIENCE_SECONDS
    shard.release.set()
    with pytest.raises(RecordNotFoundError):
        call.result()
    shard.error = None
    assert shard.guard.call(shard.hold) == "answer"


def test_every_port_but_the_status_goes_through_and_each_service_has_its_own(records):
    now = [0.0]
    memory = MemoryShard(records, topics={"configured": 1})
    shard = guarded(memory.shard("b"), THREAD_COUNT, lambda: now[0])
    deadline = Deadline.after(60)
    release, begun = threading.Event(), threading.Event()

    def hang(*arguments, **options):
        begun.set()
        assert release.wait(WAIT_SECONDS_MAX)
        return []

    assert shard.broker_name == "b"
    assert shard.queues.list_queues(None, deadline) == memory.list_queues(None, deadline)
    memory.get_many = hang
    thread = threading.Thread(target=lambda: shard.records.get_many([0], 1, deadline))
    thread.start()
    assert begun.wait(WAIT_SECONDS_MAX)
    now[0] += PATIENCE_SECONDS + 1
    with pytest.raises(ServiceUnavailableError, match="commitlog of shard b"):
        shard.records.get(0, deadline)
    with pytest.raises(ServiceUnavailableError, match="commitlog of shard b"):
        shard.topics.queue_counts(deadline)
    assert shard.queues.list_queues("none", deadline) == [], "another service of the shard"
    assert len(shard.services.statuses(deadline)) == 3
    release.set()
    thread.join()


def test_a_service_that_hangs_is_named_with_its_shard_and_a_caller_in_a_hurry_is_not_told_so(shard, pool):
    shard.error = DeadlineExceededError("late")
    for waited, expected in ((HURRY_SECONDS / 2, DeadlineExceededError), (HURRY_SECONDS, ServiceUnavailableError)):
        call = shard.begin(pool)
        shard.now += waited
        shard.release.set()
        with pytest.raises(expected) as raised:
            call.result()
        assert ran_out_of_time(raised.value)
        shard.release.clear()
