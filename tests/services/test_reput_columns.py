"""Columns over the wire: unchanged from an honest server, refused whole from one that contradicts itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.commitlog import CommitLogClient
from services.convert import dispatch_to_proto
from services.reput_columns import (
    ALL_COLUMNS,
    RECORD_COLUMNS,
    columns_from_proto,
    columns_from_requests,
    columns_to_proto,
)
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_state import IndexFileState
from store.derive.queue_runs import place_runs
from store.errors import ServiceUnavailableError
from store.format.properties import LightPlace
from tests.services.loopback import commit_log_server
from tests.support.dispatches import make_request

REQUESTS = [
    make_request(n, topic=f"t{n % 3}", queue_id=n % 2, keys=[f"k{n}"] * (n % 3), unique_key=f"u{n}" * (n % 2))
    for n in range(20)
]
REQUESTS[3] = REQUESTS[3]._replace(light_places=(LightPlace("%LMQ%a", 7), LightPlace("%LMQ%b", 0)))
REQUESTS[5] = REQUESTS[5]._replace(light_places=(LightPlace("%LMQ%a", 8),))


def message() -> pb.ReputColumns:
    return columns_to_proto(DispatchColumns.of(REQUESTS))


def assert_equal(found: DispatchColumns, requests) -> None:
    expected = DispatchColumns.of(requests)
    for name in ALL_COLUMNS:
        assert getattr(found, name).dtype == getattr(expected, name).dtype
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert (found.topics, found.first, found.last) == (expected.topics, expected.first, expected.last)
    assert found.light_units == expected.light_units


@pytest.mark.parametrize("count", [0, 1, 20])
def test_columns_cross_the_wire_unchanged(count):
    sent = columns_to_proto(DispatchColumns.of(REQUESTS[:count])).SerializeToString()

    assert_equal(columns_from_proto(pb.ReputColumns.FromString(sent)), REQUESTS[:count])


def test_numbers_are_little_endian_on_the_wire():
    found = columns_to_proto(DispatchColumns.of(REQUESTS[2:4]))

    assert found.commit_log_offsets == (200).to_bytes(8, "little") + (300).to_bytes(8, "little")
    assert found.queue_ids == (0).to_bytes(4, "little") + (1).to_bytes(4, "little")


def put(name: str, place: int, value: int):
    def change(columns: pb.ReputColumns) -> None:
        values = np.frombuffer(getattr(columns, name), dtype=ALL_COLUMNS[name]).copy()
        values[place] = value
        setattr(columns, name, values.tobytes())

    return change


CONTRADICTIONS = {
    "a topic that there is not": put("topic_numbers", 3, 3),
    "a topic before the first": put("topic_numbers", 3, -1),
    "a topic twice": lambda columns: columns.topics.append("t0"),
    "no topics": lambda columns: columns.ClearField("topics"),
    "a key of no record": put("key_records", -1, 20),
    "a key before all records": put("key_records", 0, -1),
    "keys out of order": put("key_records", 0, 19),
    "a negative hash": put("key_hashes", 0, -1),
    "a negative hash of tags": put("tags_hashes", 0, -2),
    "a record twice": put("commit_log_offsets", 5, 400),
    "records out of order": put("commit_log_offsets", 5, 900),
    "a record before the log": put("commit_log_offsets", 0, -100),
    "a record without size": put("record_sizes_bytes", 7, 0),
    "a negative size": put("record_sizes_bytes", 7, -5),
    "a light unit of no record": lambda columns: setattr(columns.light_units[0], "commit_log_offset", 301),
    "a light unit behind all records": lambda columns: setattr(columns.light_units[2], "commit_log_offset", 9000),
    "a light unit of another size": lambda columns: setattr(columns.light_units[0], "record_size_bytes", 99),
    "light units out of order": lambda columns: setattr(columns.light_units[0], "commit_log_offset", 700),
    "a light unit before its queue": lambda columns: setattr(columns.light_units[0], "queue_offset", -1),
    "no first record": lambda columns: columns.ClearField("first"),
    "no last record": lambda columns: columns.ClearField("last"),
    "another last record": lambda columns: columns.last.CopyFrom(columns.first),
    "records that are nowhere": lambda columns: [columns.ClearField(name) for name in RECORD_COLUMNS],
}
CONTRADICTIONS |= {
    f"no {name}": lambda columns, name=name: columns.ClearField(name) for name in ALL_COLUMNS if name != "tags_hashes"
}
CONTRADICTIONS |= {
    f"half a number in {name}": lambda columns, name=name: setattr(columns, name, getattr(columns, name) + b"x")
    for name in ALL_COLUMNS
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_batch_that_contradicts_itself_is_refused(what):
    sent = message()
    CONTRADICTIONS[what](sent)

    with pytest.raises(ServiceUnavailableError, match="contradicts itself"):
        columns_from_proto(sent)


def test_a_batch_of_a_version_without_hashes_of_tags_has_none():
    sent = message()
    sent.ClearField("tags_hashes")

    assert columns_from_proto(sent).tags_hashes.tolist() == [-1] * 20


def test_requests_that_stand_out_of_order_are_refused_too():
    with pytest.raises(ServiceUnavailableError, match="do not rise"):
        columns_from_requests(map(dispatch_to_proto, REQUESTS[::-1]))


VALUES = st.sampled_from([-(1 << 31), -1, 0, 1, 2, 3, 19, 20, 400, (1 << 31) - 1])


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(ALL_COLUMNS)), st.integers(0, 19), VALUES), max_size=3))
def test_whatever_is_accepted_can_be_built_from(changes):
    sent = message()
    for name, place, value in changes:
        put(name, place % (len(getattr(sent, name)) // int(ALL_COLUMNS[name][-1])), value)(sent)
    try:
        columns = columns_from_proto(sent)
    except ServiceUnavailableError:
        return

    units = sum(len(run.units) for _, _, runs in place_runs(columns) for run in runs)
    state = IndexFileState.seeded(10, 1000)
    run = state.plan(
        columns.key_hashes.astype(np.int64),
        columns.commit_log_offsets[columns.key_records],
        columns.store_times_millis[columns.key_records],
    )
    state.commit(run)

    assert units % 20 == 0
    assert state.key_count == len(columns.key_hashes)


def end_of(answers):
    def reput(request, context):
        assert request.columns
        yield from answers

    return reput


def batch(**records) -> pb.ReputResponse:
    return pb.ReputResponse(next_offset=2_000, log_first_offset=0, log_end_offset=2_000, **records)


@pytest.mark.parametrize(
    "records",
    [{"columns": message()}, {"requests": list(map(dispatch_to_proto, REQUESTS))}],
    ids=["columns", "an old server's requests"],
)
def test_a_client_takes_columns_and_requests_alike(records):
    with commit_log_server(reput=end_of([batch(**records), batch()])) as server:
        batches = iter(CommitLogClient(server.address).reput(-1))

        assert_equal(next(batches).columns, REQUESTS)
        assert next(batches).columns is None


def test_a_stream_ends_at_a_batch_that_contradicts_itself():
    sent = message()
    CONTRADICTIONS["a key of no record"](sent)

    with commit_log_server(reput=end_of([batch(columns=sent)])) as server:
        batches = iter(CommitLogClient(server.address).reput(-1))
        with pytest.raises(ServiceUnavailableError, match="contradicts itself"):
            next(batches)
