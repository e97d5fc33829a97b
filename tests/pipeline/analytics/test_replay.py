"""The changes of groups, replayed by the job, against consumer_svc's own state and brute force."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.state.codec import change_to_proto
from consumer_svc.state.queue_state import Ended, HandedOut, Lease, Moved, QueueRef
from consumer_svc.state_topic import STATE_TOPIC as TOPIC_OF_THE_SERVICE
from pipeline.analytics.replay import CHANGE_SCHEMA, EVENT_SCHEMA, FORGOTTEN, STATE_TOPIC, changes_of, events_of
from reput.consumer.v1 import state_pb2 as pb
from store.errors import StoreCorruptedError
from tests.pipeline.analytics.group_logs import GroupLog, random_log

REF = QueueRef("g", "orders", 0)


def _events(state_records: list[tuple[int, int, str, bytes]]) -> list[dict[str, Any]]:
    """As Spark runs it: taken apart in batches, sorted, applied."""
    offsets, times, kinds, bodies = zip(*state_records, strict=True)
    rows = pa.record_batch(
        {
            "physicalOffset": pa.array(offsets, pa.int64()),
            "storeTimestamp": pa.array([time * 1000 for time in times], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "tags": pa.array(kinds),
            "body": pa.array(bodies, pa.binary()),
        }
    )
    batches = [rows.slice(at, 7) for at in range(0, len(rows), 7)]
    changes = pa.Table.from_batches(list(changes_of(batches)), CHANGE_SCHEMA)
    order = [(name, "ascending") for name in ("consumer_group", "commit_log_offset", "number")]
    found = pa.Table.from_batches(list(events_of(changes.sort_by(order).to_batches(5))), EVENT_SCHEMA)
    return list(found.to_pylist())


@given(st.integers(0, 1 << 32))
def test_positions_and_consumed_messages_are_those_of_the_service(seed: int) -> None:
    log = random_log(seed, steps=25)
    events = _events(log.state_records)

    shown: dict[Any, int] = {}
    by_time: dict[Any, int] = {}
    positions = {(time, place): position for time, place, position in log.positions}
    changed = {}
    for (time, place), position in positions.items():
        now = FORGOTTEN if position is None else position
        if shown.get(place, FORGOTTEN) != now:
            changed[time, place] = shown[place] = now
    consumed = []
    for event in events:
        at = event["consumer_group"], event["topic"], event["queue_id"]
        by_time[event["time_millis"], at] = event["consumer_offset"]
        if event["first"] is not None:
            first, last = event["first"], event["last"]
            consumed += [(event["time_millis"], at, offset) for offset in range(first, last + 1)]
    # An event that shows what was consumed repeats the position.
    assert {at: by_time.get(at) for at in changed} == changed
    expected = {at: FORGOTTEN if positions[at] is None else positions[at] for at in by_time}
    assert by_time == expected
    assert sorted(consumed) == sorted(log.consumed)


def test_a_log_that_begins_with_a_full_state_has_its_positions() -> None:
    log = GroupLog()
    log.change(HandedOut(REF, 5, [Lease(at, 1, 0, 0) for at in (1, 3)]))
    log.full()
    whole = len(log.state_records)
    log.time_millis += 10
    log.change(Ended(REF, [1, 2, 3]))
    events = _events(log.state_records[whole - 3 :])
    assert [(event["first"], event["last"], event["consumer_offset"]) for event in events] == [
        (None, None, 1),
        (1, 1, 5),
        (3, 3, 5),
    ]


def test_a_committed_position_of_any_size_takes_one_row() -> None:
    records = []
    for offset, change in enumerate((Moved(REF, 0), Moved(REF, 1 << 60))):
        body = pb.StateRecord(epoch=1, changes=[change_to_proto(change)]).SerializeToString()
        records.append((offset, 0, "change", body))
    (_, event) = _events(records)
    assert (event["first"], event["last"]) == (0, (1 << 60) - 1)


def test_a_body_that_is_no_state_record_is_named() -> None:
    with pytest.raises(StoreCorruptedError, match="the record at 77 of topic rmq_sys_REPUT_CONSUMER_STATE"):
        _events([(77, 0, "change", b"\xff\xff")])


def test_a_change_of_a_later_version_is_passed_over() -> None:
    later = pb.Change.FromString(b"\xfa\x06\x00")  # field 111, which this version does not know
    body = pb.StateRecord(epoch=1, changes=[later]).SerializeToString()
    assert _events([(0, 0, "change", body)]) == []


def test_the_topic_is_the_one_that_the_service_writes() -> None:
    assert STATE_TOPIC == TOPIC_OF_THE_SERVICE


def test_random_logs_have_every_kind_of_change() -> None:
    kinds: dict[Any, int] = defaultdict(int)
    for _, _, kind, body in random_log(1, steps=300).state_records:
        kinds[kind] += 1
        for change in pb.StateRecord.FromString(body).changes:
            kinds[change.WhichOneof("change")] += 1
    assert {"full", "handed_out", "ended", "hidden", "returned", "moved", "group_deleted"} <= kinds.keys()
