"""Append requests over several shards: each message written once, receipts in order, nothing tried twice that may be there.

Append streams over several shards: answers in order, and no order lost, also when a request fails.
"""

import queue
import random
import threading
import time

import grpc
import pytest
from google.rpc import status_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.appends.forwarder import Commitlog
from gateway.appends.outcomes import failure_of, was_not_written
from gateway.appends.routes import REST_SECONDS, SHARDING_KEY
from gateway.appends.spread import SpreadStream
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.calling.channel import open_channel
from services.observing.meters import APPEND_REFUSED
from services.status import DETAILS_KEY, StatusError, error_info, from_status, to_status
from store import errors
from tests.gateway.appends.memory_logs import (
    NAMES,
    REFUSED,
    UNKNOWN_OUTCOMES,
    WAIT_SECONDS_MAX,
    Caller,
    Log,
    append,
    keyed_to_each,
    message,
    requests,
    spread_over,
    written,
)
from tests.support.ports import free_port
from tests.support.waiting import wait_until


@settings(max_examples=30, deadline=None)
@given(requests)
def test_each_message_is_written_once_and_its_receipt_stands_in_its_place(pool, batches):
    logs = {name: Log(name, pool) for name in NAMES}
    spread = spread_over(logs)
    sent = []
    for number, keys in enumerate(batches):
        bodies = [b"%d-%d" % (number, place) for place in range(len(keys))]
        results = append(spread, [message(body, key) for body, key in zip(bodies, keys, strict=True)])
        assert [result.unique_key.encode() for result in results] == bodies
        for result in results:
            assert logs[result.broker_name].bodies[result.queue_offset] == result.unique_key.encode()
        sent += bodies
    assert written(logs) == sorted(sent)


def test_a_bad_message_in_a_request_for_several_shards_writes_none_and_is_named_by_its_place(logs, spread):
    to = keyed_to_each()
    bad = message(REFUSED, to["b"][0].properties[SHARDING_KEY])

    error = append(spread, [*to["a"], *to["c"], bad])

    assert isinstance(error, errors.InvalidMessageError)
    assert error.metadata["index"] == "2"
    assert written(logs) == []
    assert [log.checked_count for log in logs.values()] == [1, 0, 1]


def test_a_shard_that_fails_after_the_check_fails_the_request_and_says_what_is_written(logs, spread):
    to = keyed_to_each(2)
    logs["b"].fails_writes_with = errors.DiskFullError("no room")

    error = append(spread, [to["a"][0], to["b"][0], to["c"][0], to["a"][1]])

    assert isinstance(error, errors.ServiceUnavailableError), "not DISK_FULL, which would mean that nothing is written"
    assert error.metadata["writtenIndexes"] == "0,2,3"
    assert error.metadata["brokerName"] == "b"
    assert "unknownIndexes" not in error.metadata


@pytest.mark.parametrize("unknown", UNKNOWN_OUTCOMES, ids=lambda error: error.reason())
@pytest.mark.parametrize("is_one_written", [False, True])
def test_two_failures_of_which_one_leaves_open_what_is_written_never_say_that_nothing_is(
    logs, spread, unknown, is_one_written
):
    to = keyed_to_each(2)
    logs["a"].fails_writes_with = errors.DiskFullError("no room")
    logs["b"].fails_writes_with = unknown
    messages = [to["a"][0], to["b"][0], to["a"][1], to["b"][1], *(to["c"][:1] if is_one_written else [])]

    error = append(spread, messages)

    assert type(error) is type(unknown)
    assert not was_not_written(to_status(error))
    assert (error.message, error.metadata["brokerName"]) == (unknown.message, "b")
    assert error.metadata["unknownIndexes"] == "1,3"
    assert error.metadata.get("writtenIndexes") == ("4" if is_one_written else None)


def test_a_strangers_failure_after_the_check_leaves_open_what_is_written(logs, spread):
    """A proxy's word, without our details."""
    to = keyed_to_each()
    stranger = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="slow down")
    logs["b"].fails_writes_with = stranger

    error = append(spread, [*to["a"], *to["b"]])

    assert isinstance(error, errors.ServiceUnavailableError)
    assert (error.metadata["writtenIndexes"], error.metadata["unknownIndexes"]) == ("0", "1")


def test_two_failures_that_wrote_nothing_still_say_so(logs, spread):
    to = keyed_to_each()
    logs["a"].fails_writes_with = errors.DiskFullError("no room")
    logs["b"].fails_writes_with = errors.InvalidMessageError("too large for a file", index=0)

    error = append(spread, [*to["a"], *to["b"]])

    assert isinstance(error, errors.DiskFullError)
    assert not {"writtenIndexes", "unknownIndexes"} & error.metadata.keys()


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreRecoveringError("wait"),
        errors.DiskFullError("no room"),
        errors.StoreReadOnlyError("a copy"),
        errors.ResourceBusyError("too many"),
        errors.TopicNotFoundError("not here", topic="orders"),
        errors.ServiceUnavailableError("no connection", notSent="true"),
    ],
    ids=lambda error: error.reason(),
)
def test_what_was_surely_not_written_is_tried_at_another_shard(logs, spread, error):
    logs["a"].fail_with = logs["b"].fail_with = error

    assert [result.broker_name for result in append(spread, [message(b"1")])] == ["c"]
    assert written(logs) == [b"1"]
    logs["c"].fail_with = error
    assert type(append(spread, [message(b"2")])) is type(error), "nobody is left"


@pytest.mark.parametrize(
    "error",
    [
        errors.ServiceUnavailableError("the connection broke"),
        errors.DeadlineExceededError("late"),
        errors.FlushFailedError("fenced"),
        errors.InvalidMessageError("bad", index=0),
        errors.StoreError("who knows"),
    ],
    ids=lambda error: error.reason(),
)
def test_what_may_be_written_is_not_tried_again(logs, spread, error):
    logs["a"].fail_with = error

    assert type(append(spread, [message(b"1")])) is type(error)
    assert written(logs) == []


@pytest.mark.parametrize("fields", [{"broker_name": "b"}, {"deduplicate": True}], ids=str)
def test_what_has_its_place_is_tried_nowhere_else(logs, spread, fields):
    for log in logs.values():
        log.fail_with = errors.StoreRecoveringError("wait")

    assert isinstance(append(spread, [message(b"1", None)], **fields), errors.StoreRecoveringError)
    to = keyed_to_each()["b"]
    for name in ("a", "c"):
        logs[name].fail_with = None
    assert isinstance(append(spread, to), errors.StoreRecoveringError)
    assert written(logs) == []


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "dns:///no-such-name.invalid:{port}", "unix:{path}/none"])
def test_grpc_says_when_it_had_no_connection_to_send_on(address, tmp_path):
    """The wording is gRPC's: when it changes, nothing is tried elsewhere any more, and this fails."""
    with open_channel(address.format(port=free_port(), path=tmp_path)) as channel:
        commitlog = Commitlog(channel, "")
        caller = Caller()
        commitlog.send_alone(b"", time.monotonic() + WAIT_SECONDS_MAX, caller)
        error = caller.end()
        commitlog.close()

    assert isinstance(error, errors.ServiceUnavailableError)
    assert error.metadata["notSent"] == "true"
    assert was_not_written(to_status(error))


class Broken(grpc.RpcError):
    def __init__(self, code, details, trailers=()):
        super().__init__()
        self._code, self._details, self._trailers = code, details, trailers

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailers


def test_a_connection_that_breaks_may_have_sent():
    status = failure_of(Broken(grpc.StatusCode.UNAVAILABLE, "Socket closed")).status

    assert not was_not_written(status)
    assert "notSent" not in error_info(status).metadata


@pytest.mark.parametrize("has_details", [False, True])
def test_resources_that_grpc_or_a_proxy_found_exhausted_may_have_written(has_details):
    """Only a commitlog's own word says that it wrote nothing."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    details = status_pb2.Status(code=code.value[0], message="Bandwidth exhausted").SerializeToString()
    status = failure_of(Broken(code, "Bandwidth exhausted", ((DETAILS_KEY, details),) if has_details else ())).status

    assert not was_not_written(status)
    error = from_status(status)
    assert type(error) is errors.ServiceUnavailableError
    assert "Bandwidth exhausted" in error.message
    assert error.metadata["service"] == "commitlog"


def test_resources_that_a_commitlog_found_exhausted_are_its_word():
    told = to_status(errors.DiskFullError("no room"))
    trailers = ((DETAILS_KEY, told.SerializeToString()),)
    failure = failure_of(Broken(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room", trailers))

    assert failure.status == told
    assert was_not_written(failure.status)


def test_a_shard_that_answers_slowly_gets_no_turn_for_a_while(logs):
    now = [0.0]
    spread = spread_over(logs, lambda: now[0])

    def be_slow():
        now[0] += 2.0

    logs["b"].on_append = be_slow
    for number in range(30):
        append(spread, [message(b"%d" % number)])

    assert len(logs["b"].bodies) == 1
    logs["b"].on_append = lambda: None
    now[0] += 6.0
    for number in range(30):
        append(spread, [message(b"later-%d" % number)])
    assert len(logs["b"].bodies) == 11


def test_a_shard_that_rests_is_asked_again_soon():
    assert 0 < REST_SECONDS <= 5


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
    wait_until(lambda: not stream._queues, "something of the stream is still under way")


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
    wait_until(lambda: "a" not in stream._queues, "the part for a is still under way")
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
