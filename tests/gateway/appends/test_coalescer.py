"""Appends of many callers, sent together: each gets what he would get alone.

Appends put together and split as bytes mean what protobuf says they mean; damaged ones are left alone.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.appends.coalescer import (
    MESSAGE_COUNT_MAX,
    REQUEST_BYTES_MAX,
    SMALL_MESSAGE_COUNT_MAX,
    SMALL_REQUEST_BYTES_MAX,
    AppendCoalescer,
    AppendFailedError,
    PendingAppend,
    SmallAppend,
    read_small_append,
    split_results,
)
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.waiting import WAIT_SECONDS_MAX


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
        yield coalescer_to(commitlog, executor, clock, sender_count=1)


def coalescer_to(commitlog, executor, clock, **options):
    """A coalescer whose failures are one word each."""
    return AppendCoalescer(
        commitlog.send,
        split,
        executor,
        clock=clock,
        expired=lambda: "expired",
        broken=lambda: "broken",
        closed=lambda: "closed",
        **options,
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


def test_requests_that_come_together_are_sent_together_and_answered_in_one_call(coalescer, commitlog):
    calls = []

    class Together(Caller):
        @staticmethod
        def answer_together(answers):
            calls.append([response for _, response in answers])
            for caller, response in answers:
                caller.answer(response)

    callers = [Together(), Caller(), Together()]
    requests = [b"a", b"bc", b"d"]
    coalescer.offer_all(
        [
            PendingAppend(request, len(request), 0, 160.0, caller)
            for request, caller in zip(requests, callers, strict=True)
        ]
    )
    assert [caller.outcome() for caller in callers] == [b"A", b"BC", b"D"]
    assert commitlog.sent == [b"abcd"]
    assert calls == [[b"A", b"D"]]


class Raising(Caller):
    """A caller with a bug in one of its functions."""

    def __init__(self, bug):
        super().__init__()
        self.raises(bug)

    def raises(self, bug):
        def call(*_arguments):
            raise ValueError("a bug of the caller")

        setattr(self, bug, call)


class Unknowable(Caller):
    """A caller that cannot say for whom it calls."""

    @property
    def client(self):
        raise ValueError("a bug of the caller")


@pytest.mark.parametrize("failure", [None, "refused", "failed"])
@pytest.mark.parametrize("bug", ["answer", "fail", "is_active", "answer_together"])
@pytest.mark.parametrize("begins", [False, True])
def test_a_caller_that_raises_costs_no_other_its_answer_and_no_sender_its_next_batch(
    commitlog, clock, failure, bug, begins
):
    def end(request, then):
        try:
            outcome = commitlog.send(request, 0)
        except AppendFailedError as error:
            outcome = error
        then(outcome)

    def begin(request, _seconds, then):
        if begins:
            socket.submit(end, request, then)
        return begins

    if failure == "failed":
        commitlog.fail_with = AppendFailedError("failed")
    with ThreadPoolExecutor(1) as socket, ThreadPoolExecutor(4) as executor:
        coalescer = coalescer_to(commitlog, executor, clock, begin=begin, sender_count=1)
        for _ in range(3):
            callers = [Caller(), Raising(bug), Raising(bug), Caller()]
            requests = [b"a", b"b", b"!" if failure == "refused" else b"c", b"d"]
            coalescer.offer_all(
                [PendingAppend(request, 1, 0, 160.0, caller) for request, caller in zip(requests, callers, strict=True)]
            )
            expected = ("failed", "failed") if failure == "failed" else (b"A", b"D")
            assert (callers[0].outcome(), callers[3].outcome()) == expected
        commitlog.fail_with = None
        assert offer(coalescer, b"z").outcome() == b"Z"


def test_a_caller_that_cannot_say_its_client_costs_no_other_its_answer(coalescer, commitlog):
    callers = [Caller(), Caller(), Unknowable()]
    requests = [b"a", b"!", b"!"]
    coalescer.offer_all(
        [PendingAppend(request, 1, 0, 160.0, caller) for request, caller in zip(requests, callers, strict=True)]
    )
    assert callers[0].outcome() == b"A"
    assert [caller.outcome()[:7] for caller in callers[1:]] == ["refused", "refused"]
    assert offer(coalescer, b"z").outcome() == b"Z"


def test_the_end_fails_every_caller_that_waits_though_one_raises(commitlog, clock):
    coalescer = coalescer_to(commitlog, ThreadPoolExecutor(1), clock, begin=lambda *_: True, sender_count=0)
    callers = [Raising("fail"), Caller()]
    coalescer.offer_all([PendingAppend(b"a", 1, 0, 160.0, caller) for caller in callers])
    coalescer.close()
    assert callers[1].outcome() == "closed"
    callers = [Raising("fail"), Caller()]
    coalescer.offer_all([PendingAppend(b"a", 1, 0, 160.0, caller) for caller in callers])
    assert callers[1].outcome() == "closed"


def test_requests_that_come_together_after_the_end_fail_each(coalescer, commitlog):
    coalescer.close()
    callers = [Caller(), Caller()]
    coalescer.offer_all([PendingAppend(b"a", 1, 0, 160.0, caller) for caller in callers])
    assert [caller.outcome() for caller in callers] == ["closed", "closed"]
    assert commitlog.sent == []


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


def test_bad_requests_that_came_together_were_peeled_off_one_by_one(coalescer, commitlog):
    """Each of them cost two calls, and the second one had all that were left: time that grew with their square."""
    count = 256
    _, callers = offer_behind_one(coalescer, commitlog, [b"!"] * count + [b"a"])
    commitlog.gate.release()
    outcomes = [caller.outcome() for caller in callers]
    assert outcomes == ["refused 0 of !"] * count + [b"A"]
    assert sum(map(len, commitlog.sent)) <= count * 12


def test_requests_of_others_waited_until_all_bad_ones_were_refused(coalescer, commitlog):
    class Of(Caller):
        def __init__(self, client):
            super().__init__()
            self.client = client

    callers = [Of("bad") for _ in range(100)] + [Of("good")]
    commitlog.is_gated = True
    first = offer(coalescer, b"first")
    assert commitlog.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    requests = [b"!"] * 100 + [b"g"]
    coalescer.offer_all(
        [PendingAppend(each, 1, 0, 160.0, caller) for each, caller in zip(requests, callers, strict=True)]
    )
    for _ in range(2):  # the refusal of all, and the one of the first
        commitlog.gate.release()
        assert commitlog.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    later = offer(coalescer, b"z")
    commitlog.is_gated = False
    commitlog.gate.release()
    assert first.outcome() == b"FIRST"
    assert [caller.outcome() for caller in callers] == ["refused 0 of !"] * 100 + [b"G"]
    assert later.outcome() == b"Z"
    assert max(commitlog.sent.index(each) for each in (b"g", b"z")) < 10


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


class Socket:
    """Takes requests without waiting, until the test answers them; `takes` says whether it takes any."""

    def __init__(self):
        self.takes = True
        self.begun = []

    def begin(self, request, _seconds, ended):
        if self.takes:
            self.begun.append((request, ended))
        return self.takes

    def end(self, number, outcome):
        self.begun[number][1](outcome)


@pytest.fixture
def socket():
    return Socket()


@pytest.fixture
def quick(commitlog, clock, socket):
    """A coalescer of one sender that can send without waiting."""
    with ThreadPoolExecutor(4) as executor:
        yield coalescer_to(commitlog, executor, clock, begin=socket.begin, sender_count=1)


def test_the_next_batch_is_sent_before_the_callers_of_the_one_before_are_answered(quick, socket, commitlog):
    first = offer(quick, b"a")
    others = [offer(quick, letter) for letter in (b"b", b"cd")]
    begun_at_answer = []
    first.answer = lambda _response: begun_at_answer.append(len(socket.begun))
    socket.end(0, b"A")

    assert begun_at_answer == [2]
    assert [request for request, _ in socket.begun] == [b"a", b"bcd"]
    socket.end(1, b"BCD")
    assert [caller.outcome() for caller in others] == [b"B", b"CD"]
    assert commitlog.sent == []
    offer(quick, b"e")
    assert len(socket.begun) == 3, "the sender is free again"


def test_a_request_that_was_refused_with_others_is_found_when_they_are_sent_again(quick, socket, commitlog):
    offer(quick, b"first")
    callers = [offer(quick, letter) for letter in (b"a", b"!", b"c")]
    socket.end(0, b"FIRST")
    behind = offer(quick, b"d")
    socket.end(1, AppendFailedError("refused 1 of a!c", is_refused=True, index=1))

    assert [caller.outcome() for caller in callers] == [b"A", "refused 0 of !", b"C"]
    assert commitlog.sent == [b"!", b"ac"]
    while len(socket.begun) < 3:
        commitlog.arrived.acquire(timeout=0.01)
    socket.end(2, b"D")
    assert behind.outcome() == b"D"


def test_a_failure_goes_to_all_callers_and_nothing_is_sent_again(quick, socket, commitlog):
    offer(quick, b"first")
    callers = [offer(quick, letter) for letter in (b"a", b"b")]
    socket.end(0, b"FIRST")
    socket.end(1, AppendFailedError("gone"))

    assert [caller.outcome() for caller in callers] == ["gone", "gone"]
    assert commitlog.sent == []
    offer(quick, b"c")
    assert len(socket.begun) == 3


def test_what_the_socket_does_not_take_is_sent_by_a_thread(quick, socket, commitlog):
    socket.takes = False
    assert offer(quick, b"a").outcome() == b"A"

    socket.takes = True
    while not socket.begun:  # until the sender is free again, its thread sends what comes
        caller = offer(quick, b"b")
    socket.end(0, None)  # nothing was sent after all
    assert caller.outcome() == b"B"
    assert set(commitlog.sent) == {b"a", b"b"}


def test_many_callers_at_once_each_get_their_own_receipts(commitlog, clock):
    """8 threads of callers, 2 senders: every message is sent once and answered to who sent it."""
    with ThreadPoolExecutor(4) as senders, ThreadPoolExecutor(8) as callers:
        coalescer = coalescer_to(commitlog, senders, clock)
        requests = [f"<{number}>".encode() if number % 7 else b"!" for number in range(800)]
        outcomes = list(callers.map(lambda request: offer(coalescer, request).outcome(), requests))

    expected = [request if number % 7 else "refused 0 of !" for number, request in enumerate(requests)]
    assert outcomes == expected


def test_callers_that_waited_when_the_shard_was_closed_got_no_response(coalescer, commitlog):
    first, waiting = offer_behind_one(coalescer, commitlog, [b"a", b"b"])
    coalescer.close()
    assert [caller.outcome() for caller in waiting] == ["closed", "closed"]
    commitlog.gate.release()
    assert first.outcome() == b"FIRST"
    assert offer(coalescer, b"late").outcome() == "closed"
    assert commitlog.sent == [b"first"]


@pytest.mark.parametrize("outcome", [None, b"AB"], ids=["to_be_sent_by_a_thread", "answered"])
def test_a_batch_that_no_thread_could_follow_left_its_callers_without_a_response(commitlog, clock, socket, outcome):
    executor = ThreadPoolExecutor(1)
    coalescer = coalescer_to(commitlog, executor, clock, begin=socket.begin, sender_count=1)
    first = offer(coalescer, b"ab")
    behind = offer(coalescer, b"c")
    executor.shutdown()
    socket.takes = False  # what is next needs a thread
    socket.end(0, outcome)

    assert first.outcome() == ("closed" if outcome is None else outcome)
    coalescer.close()
    assert behind.outcome() == "closed"


def test_a_batch_in_the_queue_of_a_pool_that_is_shut_down_is_told(commitlog, clock):
    executor, busy = ThreadPoolExecutor(1), threading.Event()
    executor.submit(busy.wait, WAIT_SECONDS_MAX)
    coalescer = coalescer_to(commitlog, executor, clock)
    caller = offer(coalescer, b"a")
    executor.shutdown(wait=False, cancel_futures=True)
    busy.set()
    assert caller.outcome() == "closed"
    assert commitlog.sent == []


bodies = st.lists(st.binary(max_size=300), min_size=1, max_size=4)
requests = st.builds(
    lambda bodies, flush: pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic="t", body=body) for body in bodies], flush=flush
    ),
    bodies,
    st.sampled_from(sorted(message_pb2.FlushMode.values())),
)
responses = st.builds(
    lambda keys: pb.AppendMessagesResponse(results=[message_pb2.AppendResult(unique_key=key) for key in keys]),
    st.lists(st.text(max_size=200), min_size=1, max_size=4),
)


@given(requests)
def test_a_request_is_read_as_protobuf_reads_it(request):
    assert read_small_append(request.SerializeToString()) == SmallAppend(len(request.messages), request.flush)


@given(st.lists(requests, min_size=1, max_size=5), st.sampled_from(sorted(message_pb2.FlushMode.values())))
def test_requests_put_together_are_one_with_the_messages_of_all(parts, flush):
    for part in parts:
        part.flush = flush
    together = pb.AppendMessagesRequest.FromString(b"".join(part.SerializeToString() for part in parts))

    assert list(together.messages) == [message for part in parts for message in part.messages]
    assert together.flush == flush


@given(st.lists(responses, min_size=1, max_size=5))
def test_a_response_is_split_into_the_ones_it_is_made_of(parts):
    whole = pb.AppendMessagesResponse(results=[result for part in parts for result in part.results])

    split = split_results(whole.SerializeToString(), [len(part.results) for part in parts])

    assert [pb.AppendMessagesResponse.FromString(part) for part in split] == parts


@given(responses, st.integers(-1, 1))
def test_a_response_with_another_count_of_receipts_is_not_split(response, difference):
    counts = [1] * (len(response.results) + difference)

    assert (split_results(response.SerializeToString(), counts) is None) == (difference != 0)


@given(st.binary(max_size=40))
@example(b"\x0a\xff\xff\xff\xff\x0f")  # a length of 4 GiB
@example(b"\x0a\xff\xff\xff\xff\xff\x01")  # a length that does not end
@example(b"\x0a")
@example(b"\x10")
def test_whatever_the_bytes_nothing_is_read_behind_their_end(data):
    small = read_small_append(data)
    counts = [1]
    split = split_results(data, counts)

    if small is not None:  # then its outer fields are whole: protobuf counts the same, unless it dislikes an inner one
        try:
            request = pb.AppendMessagesRequest.FromString(data)
        except Exception:
            return
        assert small == SmallAppend(len(request.messages), request.flush)
    assert split is None or split == [data]


@given(requests, st.data())
def test_a_request_cut_short_is_left_alone_or_shorter(request, data):
    whole = request.SerializeToString()
    cut = data.draw(st.integers(0, len(whole) - 1))

    small = read_small_append(whole[:cut])

    assert small is None or small.message_count <= len(request.messages)


MESSAGE = message_pb2.NewMessage(topic="t", body=b"x")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        pb.AppendMessagesRequest(flush=1).SerializeToString(),
        pb.AppendMessagesRequest(messages=[MESSAGE], deduplicate=True).SerializeToString(),
        pb.AppendMessagesRequest(messages=[MESSAGE]).SerializeToString() + b"\x10\x04",
        pb.AppendMessagesRequest(messages=[MESSAGE]).SerializeToString() + b"\x10\x81\x00",
        pb.AppendMessagesRequest(messages=[MESSAGE]).SerializeToString() + b"\x78\x01",
        pb.AppendMessagesRequest(messages=[MESSAGE] * (SMALL_MESSAGE_COUNT_MAX + 1)).SerializeToString(),
        pb.AppendMessagesRequest(
            messages=[message_pb2.NewMessage(topic="t", body=bytes(SMALL_REQUEST_BYTES_MAX))]
        ).SerializeToString(),
    ],
    ids=["empty", "no message", "deduplicate", "flush 4", "long varint", "unknown field", "many", "large"],
)
def test_what_is_not_everybodys_wish_travels_alone(request_bytes):
    assert read_small_append(request_bytes) is None
