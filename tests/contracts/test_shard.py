"""The contract of gateway/ports/shard.py: every implementation gives the same answers over the same log."""

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    LIST_TOPICS,
    STATUSES,
    Shard,
    body_size_bytes,
    get_record,
    get_records,
    get_units,
    head_size_bytes,
    keys_progress,
    list_queues,
    queue_count_of,
    queues_progress,
    search_key,
    search_offset,
    store_millis,
)
from gateway.ports.time_window import TimeWindow
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    DeadlineExceededError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordNotFoundError,
    TopicNotFoundError,
)
from store.format.record import Record
from tests.contracts.shard_kinds import CONFIGURED, CONFIGURED_QUEUE_COUNT, KINDS, make_log
from tests.gateway.shards.archived.archived_shard import OLD_TOPIC, TOPIC
from tests.support.archives import BROKER, Archived
from tests.support.waiting import WAIT_SECONDS_MAX

BYTES_MAX = 1 << 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    return make_log(tmp_path_factory.mktemp("contract"))


@pytest.fixture(scope="module", params=KINDS)
def shard(request: pytest.FixtureRequest, made: Archived, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with KINDS[request.param](made, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(WAIT_SECONDS_MAX)


def facts_of(found: StoredMessage) -> tuple[Any, ...]:
    return (
        *(found.topic, found.queue_id, found.queue_offset, found.commit_log_offset, store_millis(found)),
        *(found.store_host, tuple(found.keys), found.unique_key),
    )


def facts_of_record(record: Record) -> tuple[Any, ...]:
    return (
        *(record.topic, record.queue_id, record.queue_offset, record.commit_log_offset, record.store_time_millis),
        *(str(record.store_host), tuple(record.keys), record.unique_key or ""),
    )


def end_of(made: Archived) -> int:
    return made.records[-1].commit_log_offset + made.records[-1].store_size_bytes


def test_a_record_is_read_by_its_offset_with_its_body(shard: Shard, made: Archived, deadline: Deadline) -> None:
    for record in made.records:
        found = get_record(shard, record.commit_log_offset, deadline)

        assert facts_of(found) == facts_of_record(record)
        assert (body_size_bytes(found), found.body_omitted) == (len(record.body), False)
        assert bytes(found.body) == record.body
        assert head_size_bytes(found) > 0


def test_where_no_record_starts_nothing_is_found(shard: Shard, made: Archived, deadline: Deadline) -> None:
    live = made.records[-1]
    with pytest.raises((RecordNotFoundError, OffsetOutOfRangeError)):
        get_record(shard, live.commit_log_offset + 1, deadline)
    for offset in (end_of(made), end_of(made) + (1 << 40)):
        with pytest.raises(OffsetOutOfRangeError):
            get_record(shard, offset, deadline)


def test_many_records_have_one_outcome_each_in_order(shard: Shard, made: Archived, deadline: Deadline) -> None:
    wanted = [record.commit_log_offset for record in reversed(made.records)]
    asked = [wanted[0], end_of(made), *wanted[1:]]
    outcomes: list[Any] = []
    while len(outcomes) < len(asked):
        answer = get_records(shard, asked[len(outcomes) :], BYTES_MAX, deadline)
        assert answer, "at least one outcome"
        outcomes += answer

    assert isinstance(outcomes.pop(1), OffsetOutOfRangeError)
    assert [facts_of(outcome) for outcome in outcomes] == [facts_of_record(record) for record in reversed(made.records)]


def test_bodies_come_along_only_while_they_fit(shard: Shard, made: Archived, deadline: Deadline) -> None:
    by_offset = {record.commit_log_offset: record for record in made.records}
    offsets = list(by_offset)
    for body_bytes_max in (1, 60, 25_000):
        outcomes = get_records(shard, offsets, body_bytes_max, deadline)
        taken, is_full = 0, False
        for offset, outcome in zip(offsets, outcomes, strict=False):
            assert isinstance(outcome, StoredMessage)
            body = by_offset[offset].body
            if outcome.body_omitted:
                is_full = True
                assert body_size_bytes(outcome) >= len(body), "an upper bound"
            else:
                assert not (is_full and body), "none after the first that did not fit"
                assert body_size_bytes(outcome) == len(body)
                taken += len(body)
        assert taken <= body_bytes_max


@pytest.mark.parametrize("count_max", [1, 3, 1000])
@pytest.mark.parametrize("key", ["all", "AaAa", "BBBB", "U00000007", "nobody has it"])
def test_candidates_hold_every_record_with_the_key_newest_first(
    shard: Shard, made: Archived, deadline: Deadline, key: str, count_max: int
) -> None:
    below: int | None = None
    candidates: list[int] = []
    more = True
    while more:
        found = search_key(shard, TOPIC, key, TimeWindow(), below_offset=below, count_max=count_max, deadline=deadline)
        assert (found.problem, found.answer.damaged_chain_count, found.progress.is_behind) == (None, 0, False)
        assert len(found.answer.commit_log_offsets) <= count_max
        candidates += found.answer.commit_log_offsets
        more = bool(found.answer.next_page_token)
        assert not more or found.answer.commit_log_offsets, "more without a candidate would be asked for without end"
        below = candidates[-1] if candidates else None

    assert candidates == sorted(set(candidates), reverse=True)
    assert set(candidates) >= set(made.keyed(TOPIC, key))
    by_offset = {record.commit_log_offset: record for record in made.records}
    matches = [offset for offset in candidates if key in (*by_offset[offset].keys, by_offset[offset].unique_key)]
    assert [offset for offset in matches if by_offset[offset].topic == TOPIC] == made.keyed(TOPIC, key)


def test_a_window_leaves_out_no_candidate_inside_it(shard: Shard, made: Archived, deadline: Deadline) -> None:
    times = [record.store_time_millis for record in made.records]
    window = TimeWindow(times[20], times[40])

    found = search_key(shard, TOPIC, "all", window, below_offset=None, count_max=1000, deadline=deadline)

    inside = {r.commit_log_offset for r in made.records if r.topic == TOPIC and window.holds(r.store_time_millis)}
    assert set(found.answer.commit_log_offsets) >= inside


def test_an_explanation_is_never_wrong(shard: Shard, deadline: Deadline) -> None:
    found = search_key(
        shard, TOPIC, "AaAa", TimeWindow(), below_offset=None, count_max=1000, deadline=deadline, explain=True
    )

    assert found.answer.commit_log_offsets
    if found.answer.HasField("explanation"):
        assert sum(visit.candidate_count for visit in found.answer.explanation.visits) <= len(
            found.answer.commit_log_offsets
        )


def test_queues_have_the_range_of_their_messages(shard: Shard, made: Archived, deadline: Deadline) -> None:
    expected = {name: (min(queue), max(queue) + 1) for name, queue in made.queues().items()}

    def ranges(topic: str | None) -> dict[tuple[str, int], tuple[int, int]]:
        queues = list_queues(shard, topic, deadline)
        return {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in queues}

    assert ranges(None) == expected
    assert ranges(OLD_TOPIC) == {name: value for name, value in expected.items() if name[0] == OLD_TOPIC}
    assert ranges("no-such-topic") == {}


def test_units_lead_to_the_messages_of_a_queue_in_order(shard: Shard, made: Archived, deadline: Deadline) -> None:
    for (topic, queue_id), queue in made.queues().items():
        position, units = 0, []
        while position <= max(queue):
            found = get_units(shard, topic, queue_id, position, 7, deadline)
            stretch = found.answer
            assert (stretch.min_offset, stretch.max_offset, found.problem) == (0, max(queue) + 1, None)
            assert not found.progress.is_behind
            assert 0 < len(stretch.units) <= 7
            units += stretch.units
            position = stretch.units[-1].queue_offset + 1
        assert [(u.queue_offset, u.commit_log_offset, u.record_size_bytes) for u in units] == [
            (offset, record.commit_log_offset, record.store_size_bytes) for offset, record in sorted(queue.items())
        ]
        assert not get_units(shard, topic, queue_id, max(queue) + 1, 7, deadline).answer.units


def test_an_unknown_queue_is_an_error(shard: Shard, deadline: Deadline) -> None:
    for topic, queue_id in (("no-such-topic", 0), (TOPIC, 9)):
        with pytest.raises((TopicNotFoundError, QueueNotFoundError)):
            get_units(shard, topic, queue_id, 0, 1, deadline)
        with pytest.raises((TopicNotFoundError, QueueNotFoundError)):
            search_offset(shard, topic, queue_id, 0, gateway_pb.BOUNDARY_LOWER, deadline)


def test_the_position_of_a_time_is_that_of_brute_force(shard: Shard, made: Archived, deadline: Deadline) -> None:
    for (topic, queue_id), queue in made.queues().items():
        times = {offset: record.store_time_millis for offset, record in queue.items()}
        for asked in {0, 1 << 45} | {time + step for time in times.values() for step in (-1, 0, 1)}:
            lower = min((offset for offset, time in times.items() if time >= asked), default=max(times) + 1)
            upper = max((offset for offset, time in times.items() if time <= asked), default=min(times))
            for boundary, expected in ((gateway_pb.BOUNDARY_LOWER, lower), (gateway_pb.BOUNDARY_UPPER, upper)):
                found = search_offset(shard, topic, queue_id, asked, boundary, deadline)
                assert (found.answer.queue_offset, found.answer.min_offset, found.answer.max_offset, found.problem) == (
                    *(expected, min(times), max(times) + 1),
                    None,
                )


def test_builders_are_at_the_end_of_the_log(shard: Shard, made: Archived, deadline: Deadline) -> None:
    for progress in (queues_progress(shard, deadline), keys_progress(shard, deadline)):
        assert (progress.is_behind, progress.next_offset) == (False, end_of(made))


def test_the_catalog_has_the_configured_topics(shard: Shard, deadline: Deadline) -> None:
    answer = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline)
    counts = {topic.topic: queue_count_of(topic) for topic in answer.topics}

    assert counts[CONFIGURED] == CONFIGURED_QUEUE_COUNT
    assert counts[TOPIC] == 2
    assert answer.new_topic_queue_count >= 0


def test_the_status_has_a_row_for_each_service(shard: Shard, deadline: Deadline) -> None:
    rows = {row.status.service: row for row in shard.call(STATUSES, None, deadline)}

    assert {"commitlog", "consumequeue", "index"} <= set(rows)
    assert [row.error for row in rows.values()] == [None] * len(rows)


def test_without_time_nothing_is_answered(shard: Shard, made: Archived) -> None:
    over = Deadline.after(-1.0)
    offset = made.records[-1].commit_log_offset
    for call in (
        lambda: get_record(shard, offset, over),
        lambda: get_records(shard, [offset], BYTES_MAX, over),
        lambda: list_queues(shard, None, over),
        lambda: get_units(shard, TOPIC, 0, 0, 1, over),
        lambda: search_key(shard, TOPIC, "all", TimeWindow(), below_offset=None, count_max=1, deadline=over),
        lambda: shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), over),
    ):
        with pytest.raises(DeadlineExceededError):
            call()


def test_it_has_its_name(shard: Shard) -> None:
    assert shard.broker_name == BROKER
