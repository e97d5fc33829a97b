"""Append requests over several shards: each message written once, receipts in order, nothing tried twice that may be there."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.appends.commitlog import Commitlog, failure_of, was_not_written
from gateway.appends.routes import REST_SECONDS, SHARDING_KEY, AppendRoutes
from gateway.appends.spread import AppendSpread
from gateway.appends.spread_stream import SpreadStream
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.channel import open_channel
from services.clients.appends import AppendStatusError
from services.status import error_info, from_status, to_status
from store import errors
from tests.support.ports import free_port

NAMES = ("a", "b", "c")
WAIT_SECONDS_MAX = 30
REFUSED = b"refused"


class Log:
    """A commitlog in memory: bodies in the order in which they were written; one body is refused by its index."""

    def __init__(self, name, pool, jitter=None):
        self.name = name
        self.bodies = []
        self.checked_count = 0
        self.fail_with = None
        self.fails_writes_with = None
        self._pool = pool
        self._jitter = jitter
        self._lock = threading.Lock()

    def send(self, request, deadline_seconds, caller):
        self._pool.submit(self._append, request, caller)

    def _append(self, request, caller):
        if self._jitter is not None:
            time.sleep(self._jitter())
        parsed = commitlog_pb.AppendMessagesRequest.FromString(request)
        failure = self.fail_with or (None if parsed.check_only else self.fails_writes_with)
        refused = next((i for i, one in enumerate(parsed.messages) if one.body == REFUSED), None)
        if failure is None and refused is not None:
            failure = errors.InvalidMessageError("a bad one", field="body", index=refused)
        if failure is not None:
            caller.fail(to_status(failure))
            return
        if parsed.check_only:
            self.checked_count += 1
            caller.answer(b"")
            return
        with self._lock:
            begin = len(self.bodies)
            self.bodies += [one.body for one in parsed.messages]
        results = [
            message_pb2.AppendResult(unique_key=one.body.decode(), queue_offset=begin + i, broker_name=self.name)
            for i, one in enumerate(parsed.messages)
        ]
        caller.answer(commitlog_pb.AppendMessagesResponse(results=results).SerializeToString())


class Caller:
    def __init__(self):
        self.ends = []
        self._ended = threading.Event()

    def answer(self, response):
        self.ends.append(pb.AppendMessagesResponse.FromString(response).results)
        self._ended.set()

    def fail(self, status):
        self.ends.append(from_status(status))
        self._ended.set()

    def is_active(self):
        return True

    def time_remaining(self):
        return None

    def end(self):
        assert self._ended.wait(WAIT_SECONDS_MAX)
        (end,) = self.ends
        return end


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def logs(pool):
    return {name: Log(name, pool) for name in NAMES}


@pytest.fixture
def spread(logs):
    return spread_over(logs)


def spread_over(logs):
    spread = AppendSpread(AppendRoutes(lambda: 0.0))
    spread.keep(logs)
    return spread


def message(body, key=None):
    properties = {SHARDING_KEY: key} if key is not None else {}
    return message_pb2.NewMessage(topic="orders", body=body, properties=properties)


def append(spread, messages, **fields):
    caller = Caller()
    request = pb.AppendMessagesRequest(messages=messages, **fields)
    spread.append(request.SerializeToString(), time.monotonic() + WAIT_SECONDS_MAX, caller)
    return caller.end()


def written(logs):
    return sorted(body for log in logs.values() for body in log.bodies)


def keyed_to_each(count=1):
    """Messages whose keys lead to every shard."""
    routes = AppendRoutes()
    routes.keep(NAMES)
    found = {}
    for number in range(1_000):
        one = message(b"m%d" % number, f"k{number}")
        (part,) = routes.parts(pb.AppendMessagesRequest(messages=[one]))
        found.setdefault(part.broker_name, []).append(one)
    return {name: ones[:count] for name, ones in found.items()}


requests = st.lists(st.lists(st.none() | st.sampled_from("klmnop"), min_size=1, max_size=6), min_size=1, max_size=8)


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


def test_a_stream_goes_on_behind_a_refusal_and_ends_where_nobody_knows_what_was_written(logs, spread):
    def run(*bodies):
        stream = SpreadStream(spread, WAIT_SECONDS_MAX, None)
        encoded = [pb.AppendMessageStreamRequest(messages=[message(body)]).SerializeToString() for body in bodies]
        threading.Thread(target=stream.take_all, args=(iter(encoded),)).start()
        return [pb.AppendMessageStreamResponse.FromString(answer) for answer in stream]

    refused, taken = run(REFUSED, b"1")
    assert isinstance(from_status(refused.error), errors.InvalidMessageError)
    assert [result.unique_key for result in taken.results] == ["1"]
    for log in logs.values():
        log.fail_with = errors.ServiceUnavailableError("the connection broke")
    with pytest.raises(AppendStatusError):
        run(b"2", b"3")


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
    while stream._queues:  # until the one that was under way has ended
        time.sleep(0.001)

    assert log.bodies == [b"0"]


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


def test_a_connection_that_breaks_may_have_sent():
    class Broken(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return "Socket closed"

        def trailing_metadata(self):
            return ()

    status = failure_of(Broken()).status

    assert not was_not_written(status)
    assert "notSent" not in error_info(status).metadata


def test_a_shard_that_rests_is_asked_again_soon():
    assert 0 < REST_SECONDS <= 5
