"""Joins take turns: those of a client, of a silent shard, and of polls that have ended delay no others."""

import threading
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from gateway.groups.joining import CALL_SECONDS, LASTING_SECONDS, SETTLE_SECONDS, SILENT_SECONDS, Join
from gateway.groups.joins import THREAD_COUNT, Joins
from gateway.ports.shards import Shards
from store.errors import ResourceBusyError, ServiceUnavailableError
from tests.gateway.groups.memory_groups import InOrder, group_settings, groups_with
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

AWAY = ServiceUnavailableError("it is away")


class Told:
    """What polls are told."""

    def __init__(self):
        self.outcomes = []
        self.ended = threading.Event()

    def __call__(self, outcome):
        self.outcomes.append(outcome)
        self.ended.set()

    def error(self):
        assert self.ended.wait(WAIT_SECONDS_MAX)
        (outcome,) = self.outcomes
        return outcome


class Gate:
    """Makes a method wait until it is opened."""

    def __init__(self, owner, name):
        self._call = getattr(owner, name)
        self._open = threading.Event()
        self.entered = threading.Semaphore(0)
        setattr(owner, name, self._wait)

    def _wait(self, *arguments, **named):
        self.entered.release()
        assert self._open.wait(WAIT_SECONDS_MAX)
        return self._call(*arguments, **named)

    def open(self):
        self._open.set()


@pytest.fixture
def near():
    return groups_with(q0=5, q1=7)


@pytest.fixture
def far():
    return groups_with(q0=3)


@pytest.fixture
def shards(near, far):
    return Shards([near.shard("near"), far.shard("far")], InOrder())


@pytest.fixture
def begin(shards):
    """Makes joins of the shards; they are closed at the end."""
    made = []

    def make(**named):
        made.append(Joins(shards, **named))
        return made[-1]

    yield make
    for joins in made:
        joins.close()


def of(group, *, caller="ipv4:10.0.0.1:1", begins_at_end=False):
    return Join("far", group, "T", begins_at_end, caller)


def hold_all_threads(joins, far):
    """Joins of one client in all threads; open the gate."""
    gate = Gate(far, "make")
    held = [Told() for _ in range(THREAD_COUNT)]
    for number, told in enumerate(held):
        joins.join(of(f"held{number}", caller=f"ipv4:10.0.0.9:{number}"), told)
    for _ in held:
        assert gate.entered.acquire(timeout=WAIT_SECONDS_MAX)
    return gate, held


def test_polls_of_many_groups_cost_a_shard_that_joined_later_few_pauses(begin, near, far):
    pauses, polls = [], {name: [Told(), Told()] for name in ("a", "b", "c")}

    def pause(seconds):
        if not pauses:  # the time in which all others come
            wait_until(lambda: sum(len(waiting.polls) for waiting in joins._settling) == 6)
        pauses.append(seconds)

    joins = begin(pause=pause)
    for name, tolds in polls.items():
        near.groups[name] = group_settings(name)
        near.held[name, "T", 0] = 1
        for told in tolds:
            joins.join(of(name, begins_at_end=True), told)
    assert [told.error() for tolds in polls.values() for told in tolds] == [None] * 6
    assert set(pauses) == {SETTLE_SECONDS}
    assert len(pauses) <= 2, "that of the first, and one for all that came meanwhile"
    assert [far.held[name, "T", 0] for name in polls] == [0, 0, 0]


def test_a_poll_hears_why_a_shard_could_not_be_told(begin, far):
    told = Told()
    far.failure = AWAY
    begin().join(of("g", begins_at_end=True), told)
    assert isinstance(told.error(), ServiceUnavailableError)


def test_many_new_groups_of_one_client_do_not_stand_before_those_of_another(begin, far):
    joins = begin()
    gate, held = hold_all_threads(joins, far)
    order, many = [], [Told() for _ in range(50)]
    for number, told in enumerate(many):
        joins.join(of(f"many{number}"), lambda outcome, told=told: (order.append("many"), told(outcome)))
    one = Told()
    joins.join(of("one", caller="ipv4:10.0.0.2:1"), lambda outcome: (order.append("one"), one(outcome)))
    gate.open()
    assert [told.error() for told in (*held, one, *many)] == [None] * (len(held) + 51)
    assert order.index("one") <= 2 * THREAD_COUNT


def test_nothing_is_done_for_polls_that_have_all_ended(begin, far):
    joins = begin()
    gate, held = hold_all_threads(joins, far)
    left, stays = Told(), Told()
    joins.join(of("left"), left, lambda: True)
    joins.join(of("shared"), Told(), lambda: True)
    joins.join(of("shared"), stays)
    gate.open()
    assert isinstance(left.error(), ServiceUnavailableError)
    assert stays.error() is None
    assert "left" not in far.groups
    assert "shared" in far.groups
    assert [told.error() for told in held] == [None] * THREAD_COUNT


def test_a_client_has_a_share_of_the_polls_that_wait_and_gets_it_back(begin, far):
    joins = begin(poll_count_max=16)
    gate, held = hold_all_threads(joins, far)
    mine = [Told() for _ in range(16)]
    for number, told in enumerate(mine):
        joins.join(of(f"mine{number}"), told)
    other = Told()
    joins.join(of("other", caller="ipv4:10.0.0.2:1"), other)
    gate.open()
    outcomes = [told.error() for told in mine]
    refused = [outcome for outcome in outcomes if isinstance(outcome, ResourceBusyError)]
    assert len(refused) >= 8
    assert outcomes.count(None) == 16 - len(refused) > 0
    assert other.error() is None
    assert [told.error() for told in held] == [None] * THREAD_COUNT
    again = Told()
    joins.join(of("again"), again)
    assert again.error() is None


def test_joins_of_one_group_do_not_meet(begin, far):
    joins = begin()
    gate = Gate(far, "make")
    tolds = [Told(), Told()]
    joins.join(of("g"), tolds[0])
    assert gate.entered.acquire(timeout=WAIT_SECONDS_MAX)
    joins.join(of("g", caller="ipv4:10.0.0.2:1"), tolds[1])
    other = Told()
    joins.join(of("other"), other)
    assert gate.entered.acquire(timeout=WAIT_SECONDS_MAX), "another group goes on"
    assert not gate.entered.acquire(blocking=False)
    gate.open()
    assert [told.error() for told in (*tolds, other)] == [None] * 3


def test_a_group_that_joins_elsewhere_holds_up_no_other_group_of_its_client(begin, near, far):
    joins = begin()
    gate = Gate(far, "make")
    joins.join(of("slow"), first := Told())
    assert gate.entered.acquire(timeout=WAIT_SECONDS_MAX)
    joins.join(replace(of("slow"), topic="U"), second := Told())
    joins.join(replace(of("other"), broker_name="near"), other := Told())
    assert other.error() is None
    assert not first.ended.is_set()
    gate.open()
    assert [first.error(), second.error()] == [None, None]


def test_a_poll_that_cannot_be_told_ends_no_thread_and_keeps_no_other_poll_waiting(begin, far):
    def broken(_):
        raise RuntimeError("its call has ended")

    joins = begin()
    for number in range(THREAD_COUNT):
        gate, other = Gate(far, "make"), Told()
        joins.join(of(f"g{number}"), broken)
        assert gate.entered.acquire(timeout=WAIT_SECONDS_MAX)
        joins.join(replace(of(f"g{number}"), topic="U"), broken)
        joins.join(replace(of(f"g{number}"), topic="U"), other)
        gate.open()
        assert other.error() is None
    last = Told()
    joins.join(of("last"), last)
    assert last.error() is None


@pytest.mark.parametrize("begins_at_end", [False, True])
def test_a_shard_that_hangs_is_waited_for_once_and_not_for_each_group(begin, near, begins_at_end):
    now, waited = [0.0], []

    def hang(*_):
        waited.append(None)
        now[0] += CALL_SECONDS
        raise ServiceUnavailableError("did not answer for 1.0 s")

    near.settings = near.memory.list_queues = near.positions = hang
    service_count = 2 if begins_at_end else 1
    joins = begin(clock=lambda: now[0])

    def join_some(prefix, count):
        tolds = [Told() for _ in range(count)]
        for number, told in enumerate(tolds):
            joins.join(of(f"{prefix}{number}", begins_at_end=begins_at_end), told)
        return [told.error() for told in tolds]

    join_some("first", 1)
    errors = join_some("more", 200)
    assert len(waited) == service_count
    assert all("near does not answer" in error.message for error in errors)
    now[0] += SILENT_SECONDS
    (error,) = join_some("again", 1)
    assert (len(waited), "near does not answer" in error.message) == (2 * service_count, True)
    now[0] += LASTING_SECONDS
    errors = [*join_some("asked", 1), *join_some("later", 20)]
    assert len(waited) == 3 * service_count
    if begins_at_end:
        assert all("near does not answer" in error.message for error in errors)
    else:
        assert errors == [None] * 21, "a shard that is away stops no other"


def test_a_shard_that_is_late_once_gives_no_other_group_default_settings(begin, near, far):
    wanted = group_settings("g", consume_enabled=False, is_set=True)
    near.groups["g"] = wanted
    now, ask = [0.0], near.settings

    def late(*_):
        near.settings = ask
        now[0] += CALL_SECONDS
        raise ServiceUnavailableError("did not answer for 1.0 s")

    near.settings = late
    joins = begin(clock=lambda: now[0])
    for group in ("late", "g"):
        joins.join(of(group), told := Told())
        assert isinstance(told.error(), ServiceUnavailableError)
    assert far.groups == {}
    now[0] += SILENT_SECONDS
    joins.join(of("g"), told := Told())
    assert told.error() is None
    assert far.groups == {"g": wanted}


def test_a_gateway_that_ends_tells_shards_of_no_more_groups(begin, far):
    joins, told = begin(), Told()
    joins.close()
    joins.join(of("g"), told)
    assert isinstance(told.error(), ServiceUnavailableError)
    assert far.groups == {}


def test_a_gateway_that_ends_waits_for_no_pause_and_tells_all_polls(begin, near, far):
    near.groups["g"], near.held["g", "T", 0] = group_settings("g"), 1
    before = set(threading.enumerate())
    joins, told, paused = begin(), Told(), threading.Event()
    wait = joins._pause

    def pause(seconds):
        paused.set()
        return wait(600)

    joins._pause = pause
    joins.join(of("g", begins_at_end=True), told)
    assert paused.wait(WAIT_SECONDS_MAX)
    with capture_logs() as logs:
        joins.close()
    assert "this gateway ends" in told.error().message
    assert (far.held, logs) == ({}, [])
    assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("joins")]


def test_a_join_under_way_when_the_gateway_ends_leaves_no_traceback(begin, far):
    """Its shards may be closed by then."""
    joins, told = begin(), Told()

    def closed(*_):
        raise RuntimeError("cannot schedule new futures after shutdown")

    far.make = closed
    gate = Gate(far, "make")
    joins.join(of("g"), told)
    assert gate.entered.acquire(timeout=WAIT_SECONDS_MAX)
    queued = Told()
    joins.join(of("g", caller="ipv4:10.0.0.2:1"), queued)
    with capture_logs() as logs:
        closing = threading.Thread(target=joins.close)
        closing.start()
        assert "this gateway ends" in queued.error().message
        gate.open()
        closing.join(WAIT_SECONDS_MAX)
    assert told.error() is not None
    assert logs == []
