"""Append streams over several shards: answers in order, and no order lost, also when a request fails."""

import queue
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.appends.spread_stream import SpreadStream
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing.meters import APPEND_REFUSED
from services.status import StatusError, error_info, from_status
from store import errors
from tests.gateway.appends.memory_logs import (
    NAMES,
    REFUSED,
    UNKNOWN_OUTCOMES,
    WAIT_SECONDS_MAX,
    Log,
    keyed_to_each,
    message,
    requests,
    spread_over,
    written,
)
from tests.support.waiting import wait_until


@settings(max_examples=20, deadline=None)
@given(requests, st.integers(0, 1 << 16))
def test_a_stream_answers_in_order_and_keeps_the_order_of_each_key(pool, batches, seed):
    chance = random.Random(seed)
    logs = {name: Log(name, pool, jitter=lambda: chance.random() / 300) for name in NAMES}
    stream = SpreadStream(spread_over(logs), WAIT_SECONDS_MAX, None)
    bodies_by_key, encoded, expected = {}, [], []
    for number, keys in enumerate(batches):
        bodies = [b"%d-%d" % (number, place) for place in range(len(keys))]
        for body, key in zip(bodies, keys, strict=True):
            if key is not None:
                bodies_by_key.setdefault(key, []).append(body)
        ones = [message(body, key) for body, key in zip(bodies, keys, strict=True)]
        encoded.append(pb.AppendMessageStreamRequest(messages=ones).SerializeToString())
        expected.append(bodies)
    taking = threading.Thread(target=stream.take_all, args=(iter(encoded),))
    taking.start()

    answers = [pb.AppendMessageStreamResponse.FromString(answer) for answer in stream]
    taking.join()

    assert [[result.unique_key.encode() for result in answer.results] for answer in answers] == expected
    assert written(logs) == sorted(body for bodies in expected for body in bodies)
    for bodies in bodies_by_key.values():
        (home,) = [log for log in logs.values() if bodies[0] in log.bodies]
        assert [body for body in home.bodies if body in bodies] == bodies


def test_a_stream_goes_on_behind_a_refusal_and_ends_where_nobody_knows_what_was_written(logs, spread):
    def run(*bodies):
        stream = SpreadStream(spread, WAIT_SECONDS_MAX, None)
        encoded = [pb.AppendMessageStreamRequest(messages=[message(body)]).SerializeToString() for body in bodies]
        threading.Thread(target=stream.take_all, args=(iter(encoded),)).start()
        return [pb.AppendMessageStreamResponse.FromString(answer) for answer in stream]

    counter = APPEND_REFUSED.of("GatewayService/AppendMessageStream", "INVALID_ARGUMENT")
    before = counter.read()
    refused, taken = run(REFUSED, b"1")
    assert counter.read() == before + 1, "no status of a call tells of it"
    assert isinstance(from_status(refused.error), errors.InvalidMessageError)
    assert [result.unique_key for result in taken.results] == ["1"]
    for log in logs.values():
        log.fail_with = errors.ServiceUnavailableError("the connection broke")
    with pytest.raises(StatusError):
        run(b"2", b"3")


class Scripted(Log):
    """A commitlog whose writes wait until they may go on, one after the other, and fail as told."""

    def __init__(self, name, pool):
        super().__init__(name, pool)
        self.outcomes = queue.SimpleQueue()
        self.arrived = threading.Semaphore(0)

    def _append(self, request, caller):
        if not commitlog_pb.AppendMessagesRequest.FromString(request).check_only:
            self.arrived.release()
            self.fails_writes_with = self.outcomes.get(timeout=WAIT_SECONDS_MAX)
        super()._append(request, caller)


def stream_of(spread, batches):
    """A stream that has all its requests under way or waiting, and the thread that takes them."""
    stream = SpreadStream(spread, WAIT_SECONDS_MAX, None)
    encoded = [pb.AppendMessageStreamRequest(messages=ones).SerializeToString() for ones in batches]
    taking = threading.Thread(target=stream.take_all, args=(iter(encoded),))
    taking.start()
    return stream, taking


def wait_until_nothing_waits(stream):
    wait_until(lambda: not stream._queues, "something of the stream is still under way", WAIT_SECONDS_MAX)


@pytest.mark.parametrize("unknown", [error for error in UNKNOWN_OUTCOMES if error.reason() != "FLUSH_FAILED"], ids=str)
def test_nothing_is_sent_behind_a_request_of_unknown_outcome_so_that_sending_again_keeps_the_order(pool, unknown):
    log = Scripted("a", pool)
    stream, taking = stream_of(spread_over({"a": log}), [[message(b"%d" % number)] for number in range(4)])
    taking.join()
    for outcome in (None, unknown, None, None):
        log.outcomes.put(outcome)
    wait_until_nothing_waits(stream)

    assert log.bodies == [b"0"], "2 and 3 would stand before 1 once that is sent again"
    answers = iter(stream)
    assert pb.AppendMessageStreamResponse.FromString(next(answers)).results[0].unique_key == "0"
    with pytest.raises(StatusError) as ended:
        next(answers)
    assert type(from_status(ended.value.status)) is type(unknown)


def test_nothing_is_sent_behind_a_part_that_failed_while_another_part_may_be_written(pool):
    """The part's own failure says that nothing is written; the stream ends all the same once the other part is."""
    logs = {name: Scripted(name, pool) for name in NAMES}
    to = keyed_to_each(2)
    stream, taking = stream_of(spread_over(logs), [[to["a"][0], to["b"][0]], [to["a"][1]]])
    taking.join()
    assert logs["b"].arrived.acquire(timeout=WAIT_SECONDS_MAX)
    for outcome in (errors.DiskFullError("no room"), None):
        logs["a"].outcomes.put(outcome)
    wait_until(lambda: "a" not in stream._queues, "the part for a is still under way", WAIT_SECONDS_MAX)
    logs["b"].outcomes.put(None)
    wait_until_nothing_waits(stream)

    assert logs["a"].bodies == []
    with pytest.raises(StatusError) as ended:
        list(stream)
    assert error_info(ended.value.status).metadata["writtenIndexes"] == "1"


def test_nothing_is_sent_behind_a_check_that_got_no_answer(pool):
    logs = {name: Log(name, pool) for name in NAMES}
    to = keyed_to_each(2)
    checked = []

    class Breaks(Log):
        def _append(self, request, caller):
            is_check = commitlog_pb.AppendMessagesRequest.FromString(request).check_only
            checked.append(is_check)
            self.fail_with = errors.ServiceUnavailableError("the connection broke") if is_check else None
            super()._append(request, caller)

    logs["b"] = Breaks("b", pool)
    stream, taking = stream_of(spread_over(logs), [[to["a"][0], to["b"][0]], [to["b"][1]], [to["a"][1]]])
    taking.join()
    wait_until_nothing_waits(stream)

    assert checked == [True]
    assert written(logs) == []
    with pytest.raises(StatusError):
        list(stream)


def test_a_stream_goes_on_behind_a_request_that_was_surely_not_written(pool):
    log = Scripted("a", pool)
    stream, taking = stream_of(spread_over({"a": log}), [[message(b"%d" % number)] for number in range(3)])
    taking.join()
    for outcome in (None, errors.ServiceUnavailableError("no connection", notSent="true"), None):
        log.outcomes.put(outcome)

    answers = [pb.AppendMessageStreamResponse.FromString(answer) for answer in stream]

    assert [answer.HasField("error") for answer in answers] == [False, True, False]
    assert log.bodies == [b"0", b"2"]


def test_a_cancelled_stream_sends_nothing_more(pool):
    """Also not what waits behind a request that is under way."""
    started, release = threading.Event(), threading.Event()

    class Held(Log):
        def _append(self, request, caller):
            started.set()
            assert release.wait(WAIT_SECONDS_MAX)
            super()._append(request, caller)

    log = Held("a", pool)
    stream = SpreadStream(spread_over({"a": log}), WAIT_SECONDS_MAX, None)
    encoded = [pb.AppendMessageStreamRequest(messages=[message(b"%d" % n)]).SerializeToString() for n in range(3)]
    taking = threading.Thread(target=stream.take_all, args=(iter(encoded),))
    taking.start()
    taking.join()
    assert started.wait(WAIT_SECONDS_MAX)
    stream.cancel()
    assert list(stream) == []
    release.set()
    pool.submit(lambda: None).result()
    wait_until_nothing_waits(stream)

    assert log.bodies == [b"0"]
