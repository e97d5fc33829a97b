"""Append requests over several shards: each message written once, receipts in order, nothing tried twice that may be there."""

import time

import grpc
import pytest
from google.rpc import status_pb2
from hypothesis import given, settings

from gateway.appends.commitlog import Commitlog, failure_of, was_not_written
from gateway.appends.routes import REST_SECONDS, SHARDING_KEY
from services.calling.channel import open_channel
from services.status import DETAILS_KEY, error_info, from_status, to_status
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
