"""A shard that hangs takes no more than a few threads; one that is slow, and callers in a hurry, change nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from gateway.ports.deadline import Deadline, ran_out_of_time
from gateway.ports.shard import (
    ARCHIVE_PROBLEM,
    LOG_END,
    STATUSES,
    get_record,
    get_records,
    keys_progress,
    list_queues,
    queues_progress,
    topics_of,
)
from gateway.shards.guard import HURRY_SECONDS, PATIENCE_SECONDS, ShardGuard, guarded
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from store.errors import DeadlineExceededError, RecordNotFoundError, ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard, methods_of_ports
from tests.support.waiting import WAIT_SECONDS_MAX

THREAD_COUNT = 8


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


def test_many_calls_of_one_client_had_the_calls_of_others_refused(shard, pool):
    """Half of the threads waited for a service that was busy, and answered all the time."""
    calls = [shard.begin(pool) for _ in range(THREAD_COUNT // 2 + 1)]
    for _ in range(4):
        shard.now += HURRY_SECONDS
        assert shard.guard.call(lambda: "quick") == "quick"
    shard.now += HURRY_SECONDS + 0.01
    with pytest.raises(ServiceUnavailableError):
        shard.guard.call(lambda: "not asked")
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


def test_two_calls_at_once_to_a_service_that_had_healed_were_one_failure(shard, pool):
    shard.error = DeadlineExceededError("late")
    late = shard.begin(pool)
    shard.now += 2 * PATIENCE_SECONDS
    shard.release.set()
    assert isinstance(late.exception(), ServiceUnavailableError)
    shard.release.clear()
    shard.error = None

    probe = shard.begin(pool)
    another = pool.submit(shard.guard.call, shard.hold)
    assert not another.done()
    shard.release.set()
    assert (probe.result(), another.result()) == ("answer", "answer")


def test_a_service_that_waited_for_another_one_was_named_instead_of_it(shard, pool):
    shard.error = DeadlineExceededError("commitlog: Deadline Exceeded", service="commitlog")
    call = shard.begin(pool)
    shard.now += 2 * PATIENCE_SECONDS
    shard.release.set()
    with pytest.raises(ServiceUnavailableError, match="commitlog of shard b did not answer index in time") as raised:
        call.result()
    assert raised.value.metadata == {"service": "commitlog", "brokerName": "b"}

    shard.release.clear()
    shard.error = None
    shard.now += 2 * PATIENCE_SECONDS
    both = [shard.begin(pool), shard.begin(pool)]
    shard.release.set()
    assert [call.result() for call in both] == ["answer"] * 2, "it has answered"


def test_a_search_whose_queues_hung_named_nobody(records):
    """Its first question, how far they are built, went past the guard."""
    now = [0.0]
    memory = MemoryShard(records)

    def hang(*_):
        now[0] += 2 * HURRY_SECONDS
        raise DeadlineExceededError("late")

    memory.progress = hang
    shard = guarded(memory.shard("b"), THREAD_COUNT, lambda: now[0])
    for service, progress in (("consumequeue", queues_progress), ("index", keys_progress)):
        with pytest.raises(ServiceUnavailableError) as raised:
            progress(shard, Deadline.after(60))
        assert raised.value.metadata == {"service": service, "brokerName": "b"}
        with pytest.raises(DeadlineExceededError):
            progress(shard, Deadline.after(60), 0, 1.0)  # it waits on purpose


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
    release, begun = threading.Event(), threading.Semaphore(0)

    def hang(*arguments, **options):
        begun.release()
        assert release.wait(WAIT_SECONDS_MAX)
        return []

    assert shard.broker_name == "b"
    assert list_queues(shard, None, deadline) == memory.list_queues(None, deadline)
    memory.get_many = hang
    threads = [threading.Thread(target=lambda: get_records(shard, [0], 1, deadline)) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert begun.acquire(timeout=WAIT_SECONDS_MAX)
    now[0] += PATIENCE_SECONDS + 1
    with pytest.raises(ServiceUnavailableError, match="commitlog of shard b"):
        get_record(shard, 0, deadline)
    with pytest.raises(ServiceUnavailableError, match="commitlog of shard b"):
        topics_of(shard, deadline)
    assert list_queues(shard, "none", deadline) == [], "another service of the shard"
    assert len(shard.call(STATUSES, None, deadline)) == 3
    at_hand = get_record(shard, records[0].commit_log_offset, Deadline.at_hand())
    assert at_hand.commit_log_offset == records[0].commit_log_offset, "what makes no call is not refused"
    release.set()
    for thread in threads:
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


def test_one_slow_good_call_refused_every_new_call(shard, pool):
    """With a single shard, a read of a cold disk was an outage for all other queries."""
    slow = shard.begin(pool)
    for seconds in (PATIENCE_SECONDS + 0.1, PATIENCE_SECONDS / 2, 1.5 * PATIENCE_SECONDS):
        shard.now += seconds
        assert shard.guard.call(lambda: "quick") == "quick"
    shard.release.set()
    assert slow.result() == "answer"


def test_a_service_that_answers_other_calls_does_not_hang(shard, pool):
    calls = [shard.begin(pool), shard.begin(pool)]
    shard.now += PATIENCE_SECONDS
    assert shard.guard.call(lambda: "quick") == "quick"
    shard.now += PATIENCE_SECONDS
    assert shard.guard.call(lambda: "quick") == "quick"
    shard.now += PATIENCE_SECONDS + 0.1
    with pytest.raises(ServiceUnavailableError):
        shard.guard.call(lambda: "not asked")
    shard.release.set()
    assert [call.result() for call in calls] == ["answer"] * 2


def test_slow_reads_of_an_archive_hid_where_the_log_ends(records):
    """The end is a matter of microseconds; unrelated queries were PARTIAL for as long as the reads took."""
    now = [0.0]
    memory = MemoryShard(records)

    shard = memory.shard("b").serving(LOG_END, lambda request, deadline: 17).serving(ARCHIVE_PROBLEM, lambda *_: None)
    shard = guarded(shard, THREAD_COUNT, lambda: now[0])
    deadline = Deadline.after(60)
    release, begun = threading.Event(), threading.Semaphore(0)

    def read(*arguments, **options):
        begun.release()
        assert release.wait(WAIT_SECONDS_MAX)
        return []

    memory.get_many = read
    threads = [threading.Thread(target=lambda: get_records(shard, [0], 1, deadline)) for _ in range(3)]
    for thread in threads:
        thread.start()
        assert begun.acquire(timeout=WAIT_SECONDS_MAX)
    now[0] += PATIENCE_SECONDS + 1
    assert shard.call(LOG_END, log_pb.GetStatusRequest(), deadline) == 17
    release.set()
    for thread in threads:
        thread.join()


def test_every_guarded_method_of_a_shard_is_counted_by_the_guard_of_its_service(deadline):
    def late(*_asked):
        raise DeadlineExceededError("late")

    shard = MemoryShard([]).shard("b")
    for method in methods_of_ports():
        shard = shard.serving(method, late)
    for method in methods_of_ports():
        seconds = iter(range(0, 100, int(PATIENCE_SECONDS)))
        asking = guarded(shard, THREAD_COUNT, lambda seconds=seconds: next(seconds))
        with pytest.raises(ServiceUnavailableError if method.is_guarded else DeadlineExceededError) as refused:
            asking.call(method, SimpleNamespace(wait_millis=0), deadline)
        assert refused.value.metadata.get("service", method.service) == method.service
