"""Appends of many callers, sent together: each gets what he would get alone."""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from gateway.appends.coalescer import (
    MESSAGE_COUNT_MAX,
    REQUEST_BYTES_MAX,
    AppendCoalescer,
    AppendFailedError,
    PendingAppend,
)

WAIT_SECONDS_MAX = 30


class Caller:
    def __init__(self):
        self.answers = []
        self.active = True
        self._ended = threading.Event()

    def answer(self, response):
        self.answers.append(response)
        self._ended.set()

    def fail(self, status):
        self.answers.append(status)
        self._ended.set()

    def is_active(self):
        return self.active

    def outcome(self):
        assert self._ended.wait(WAIT_SECONDS_MAX)
        (answer,) = self.answers
        return answer


class Commitlog:
    """Requests are bytes of one letter a message; receipts are the same letters, in capitals. `!` is refused."""

    def __init__(self):
        self.sent = []
        self.seconds = []
        self.fail_with = None
        self.names_index = True
        self.gate = threading.Semaphore(0)
        self.is_gated = False
        self.arrived = threading.Semaphore(0)

    def send(self, request, seconds):
        self.sent.append(request)
        self.seconds.append(seconds)
        self.arrived.release()
        if self.is_gated:
            assert self.gate.acquire(timeout=WAIT_SECONDS_MAX)
        if self.fail_with is not None:
            raise self.fail_with
        if b"!" in request:
            index = request.index(b"!") if self.names_index else None
            raise AppendFailedError(f"refused {index} of {request.decode()}", is_refused=True, index=index)
        return request.upper()


def split(response, counts):
    if sum(counts) != len(response):
        return None
    parts, begin = [], 0
    for count in counts:
        parts.append(response[begin : begin + count])
        begin += count
    return parts


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def commitlog():
    return Commitlog()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def coalescer(commitlog, clock):
    with ThreadPoolExecutor(4) as executor:
        yield AppendCoalescer(
            commitlog.send,
            split,
            executor,
            clock=clock,
            expired=lambda: "expired",
            broken=lambda: "broken",
            sender_count=1,
        )


def offer(coalescer, request, *, flush=0, deadline_seconds=160.0, message_count=None):
    caller = Caller()
    count = len(request) if message_count is None else message_count
    coalescer.offer(PendingAppend(request, count, flush, deadline_seconds, caller))
    return caller


def offer_behind_one(coalescer, commitlog, requests, **options):
    """The first is under way while the others come, so that those are sent together."""
    commitlog.is_gated = True
    first = offer(coalescer, b"first")
    assert commitlog.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    callers = [offer(coalescer, request, **options) for request in requests]
    commitlog.is_gated = False
    return first, callers


def test_who_comes_to_an_idle_sender_is_sent_alone_and_who_comes_meanwhile_together(coalescer, commitlog):
    first, callers = offer_behind_one(coalescer, commitlog, [b"a", b"bc", b"d"])
    commitlog.gate.release()

    assert first.outcome() == b"FIRST"
    assert [caller.outcome() for caller in callers] == [b"A", b"BC", b"D"]
    assert commitlog.sent == [b"first", b"abcd"]


def test_a_sender_that_is_free_waits_until_as_many_wait_as_another_one_carries(clock):
    """Two senders took turns with the few that came meanwhile: four flushes on two machines for what one could carry."""
    arrived, gates = SimpleQueue(), defaultdict(threading.Event)

    def send(request, seconds):
        arrived.put(request)
        assert gates[request].wait(WAIT_SECONDS_MAX)
        return request.upper()

    with ThreadPoolExecutor(4) as executor:
        coalescer = AppendCoalescer(
            send, split, executor, clock=clock, expired=lambda: "expired", broken=lambda: "broken", sender_count=2
        )
        callers = [offer(coalescer, b"a")]
        assert arrived.get(timeout=WAIT_SECONDS_MAX) == b"a"
        callers.append(offer(coalescer, b"b"))
        assert arrived.get(timeout=WAIT_SECONDS_MAX) == b"b"
        callers += [offer(coalescer, request) for request in (b"c", b"d", b"e")]
        gates[b"a"].set()
        assert arrived.get(timeout=WAIT_SECONDS_MAX) == b"cde"
        callers.append(offer(coalescer, b"f"))
        gates[b"b"].set()
        callers[1].outcome()
        callers += [offer(coalescer, request) for request in (b"g", b"h")]
        assert arrived.get(timeout=WAIT_SECONDS_MAX) == b"fgh"
        callers.append(offer(coalescer, b"i"))  # fewer than are under way; the first sender that is back takes it
        gates[b"fgh"].set()
        gates[b"cde"].set()
        gates[b"i"].set()
        assert [caller.outcome() for caller in callers] == [b"A", b"B", b"C", b"D", b"E", b"F", b"G", b"H", b"I"]


@pytest.mark.parametrize("names_index", [True, False])
def test_a_refused_request_gets_its_own_refusal_and_fails_no_other(coalescer, commitlog, names_index):
    commitlog.names_index = names_index
    _, callers = offer_behind_one(coalescer, commitlog, [b"ab", b"c!", b"d", b"!", b"e"])
    commitlog.gate.release()

    named = (1, 0) if names_index else (None, None)
    assert [caller.outcome() for caller in callers] == [
        b"AB",
        f"refused {named[0]} of c!",
        b"D",
        f"refused {named[1]} of !",
        b"E",
    ]
    written = [request for request in commitlog.sent if b"!" not in request]
    assert sorted(b"".join(written)) == sorted(b"firstabde")  # each once


def test_a_failure_is_everybodys_who_was_under_way_and_nothing_is_sent_twice(coalescer, commitlog):
    first, callers = offer_behind_one(coalescer, commitlog, [b"a", b"b"])
    commitlog.fail_with = AppendFailedError("unavailable")
    commitlog.gate.release()

    assert first.outcome() == "unavailable"
    assert [caller.outcome() for caller in callers] == ["unavailable"] * 2
    assert commitlog.sent == [b"first", b"ab"]

    commitlog.fail_with = None
    assert offer(coalescer, b"later").outcome() == b"LATER"


def test_ways_to_flush_are_never_mixed_and_do_not_wait_for_each_other(coalescer, commitlog):
    commitlog.is_gated = True
    held = offer(coalescer, b"held", flush=2)
    assert commitlog.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    waiting = offer(coalescer, b"s", flush=2)
    commitlog.is_gated = False

    assert offer(coalescer, b"a", flush=1).outcome() == b"A"
    assert not held.answers
    commitlog.gate.release()
    assert (held.outcome(), waiting.outcome()) == (b"HELD", b"S")
    assert commitlog.sent == [b"held", b"a", b"s"]


@pytest.mark.parametrize(
    ("size_bytes", "message_count"), [(1, MESSAGE_COUNT_MAX // 2 + 1), (REQUEST_BYTES_MAX // 2 + 1, 1)]
)
def test_what_does_not_fit_into_one_request_goes_with_the_next(coalescer, commitlog, size_bytes, message_count):
    requests = [letter * size_bytes for letter in (b"a", b"b", b"c")]
    _, callers = offer_behind_one(coalescer, commitlog, requests, message_count=message_count)
    commitlog.gate.release()

    assert [caller.outcome() for caller in callers] == [request.upper() for request in requests]
    assert commitlog.sent == [b"first", *requests]


def test_who_is_gone_or_late_before_his_turn_is_not_sent(coalescer, commitlog, clock):
    _, (gone, stays) = offer_behind_one(coalescer, commitlog, [b"a", b"b"])
    late = offer(coalescer, b"c", deadline_seconds=clock.now + 1)
    gone.active = False
    clock.now += 2
    commitlog.gate.release()

    assert stays.outcome() == b"B"
    assert late.outcome() == "expired"
    gone.outcome()
    assert commitlog.sent == [b"first", b"b"]


def test_a_request_waits_as_long_as_its_most_patient_caller(coalescer, commitlog, clock):
    commitlog.is_gated = True
    offer(coalescer, b"first", deadline_seconds=clock.now + 3)
    assert commitlog.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    callers = [offer(coalescer, b"a", deadline_seconds=clock.now + seconds) for seconds in (5, 50, 20)]
    commitlog.is_gated = False
    commitlog.gate.release()

    assert [caller.outcome() for caller in callers] == [b"A"] * 3
    assert commitlog.seconds == [3, 50]


def test_receipts_that_do_not_fit_are_nobodys(coalescer, commitlog):
    _, callers = offer_behind_one(coalescer, commitlog, [b"a", b"b"], message_count=2)
    commitlog.gate.release()

    assert [caller.outcome() for caller in callers] == ["broken"] * 2


def test_a_bug_ends_the_calls_under_way_and_not_the_sender(coalescer, commitlog):
    commitlog.fail_with = ZeroDivisionError()
    assert [offer(coalescer, b"a").outcome() for _ in range(3)] == ["broken"] * 3

    commitlog.fail_with = None
    assert offer(coalescer, b"a").outcome() == b"A"


def test_many_callers_at_once_each_get_their_own_receipts(commitlog, clock):
    """8 threads of callers, 2 senders: every message is sent once and answered to who sent it."""
    with ThreadPoolExecutor(4) as senders, ThreadPoolExecutor(8) as callers:
        coalescer = AppendCoalescer(
            commitlog.send, split, senders, clock=clock, expired=lambda: "expired", broken=lambda: "broken"
        )
        requests = [f"<{number}>".encode() if number % 7 else b"!" for number in range(800)]
        outcomes = list(callers.map(lambda request: offer(coalescer, request).outcome(), requests))

    expected = [request if number % 7 else "refused 0 of !" for number, request in enumerate(requests)]
    assert outcomes == expected
