"""The audit log's lines, and how many there are at most; and that no port is open to a caller unseen."""

import tracemalloc

import pytest

from gateway.auth import caller_shards
from gateway.auth.access import READ, Access, Role
from gateway.auth.audit import (
    COUNTER_COUNT_MAX,
    DENIED_COUNT_MAX,
    HIDDEN_COUNT_MAX,
    OTHERS,
    WINDOW_SECONDS,
    Audit,
)
from gateway.auth.caller_shards import CallerShards, VisibleTopics, work_for
from gateway.ports.chain import ShardMethod
from gateway.ports.shard import get_record, get_records, get_units, list_queues, search_key, topics_of
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from store.errors import PermissionDeniedError, RecordNotFoundError, StoreError
from tests.gateway.memory_shard import MemoryShard, methods_of_ports


class Written:
    def __init__(self):
        self.now = 0.0
        self.lines = []
        self.audit = Audit(lambda event, **fields: self.lines.append({"event": event} | fields), lambda: self.now)


def test_appends_are_told_at_once_and_then_together():
    written = Written()
    for _ in range(100):
        written.audit.appended("c", "/m", {"t": 32}, "OK")
    assert [line["call_count"] for line in written.lines] == [1]

    written.now += WINDOW_SECONDS
    written.audit.flush()

    assert [(line["call_count"], line["message_count"]) for line in written.lines] == [(1, 32), (99, 99 * 32)]
    written.audit.close()
    assert len(written.lines) == 2


def test_many_topics_make_no_more_lines_than_counters():
    written = Written()
    for number in range(COUNTER_COUNT_MAX + 500):
        written.audit.appended("c", "/m", {f"t{number}": 1}, "OK")
    written.audit.close()

    assert len(written.lines) == COUNTER_COUNT_MAX + 1
    assert written.lines[-1]["topic"] == OTHERS
    assert sum(line["message_count"] for line in written.lines) == COUNTER_COUNT_MAX + 500


def test_a_flood_of_refusals_is_counted_and_not_written_line_by_line():
    written = Written()
    for _ in range(1_000):
        written.audit.denied("c\nforged line", "peer", "/m", "t\x1b[31m" * 1_000, "PERMISSION_DENIED")
    written.now += 1.0
    written.audit.denied("c", "peer", "/m", "t", "PERMISSION_DENIED")

    assert len(written.lines) == DENIED_COUNT_MAX + 1
    assert written.lines[-1]["suppressed_count"] == 1_000 - DENIED_COUNT_MAX
    assert all(len(value) <= 256 and value.isprintable() for value in written.lines[0].values())


def test_long_topics_and_many_clients_fill_no_memory_until_the_window_ends():
    written = Written()
    tracemalloc.start()
    try:
        for number in range(COUNTER_COUNT_MAX // 2):
            written.audit.appended("c", "/m", {f"{number:0100000d}": 1}, "OK")
        for number in range(20 * COUNTER_COUNT_MAX):
            written.audit.appended(f"{number:010000d}"[-number % 9_000 :], "/m", {f"t{number}": 1}, "OK")
        written.lines.clear()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert kept < 4 << 20
    written.audit.close()
    assert len(written.lines) <= 2 * COUNTER_COUNT_MAX + 1


def test_a_call_for_a_hidden_message_has_its_line_when_the_window_is_written():
    """Writing it at once would take time that an answer for an absent one does not take."""
    written = Written()
    for number in range(2 * HIDDEN_COUNT_MAX):
        written.audit.hidden("c", f"peer-{number}", "/m")
    assert written.lines == []

    written.audit.flush()

    assert len(written.lines) == DENIED_COUNT_MAX
    assert written.lines[0] == {
        "event": "audit.denied", "client": "c", "peer": f"peer-{HIDDEN_COUNT_MAX}", "method": "/m", "topic": "",
        "outcome": "PERMISSION_DENIED",
    }  # fmt: skip


def test_every_method_of_a_shard_is_decided_upon():
    """A new one is refused to callers who may not see everything, until somebody has thought about it."""
    assert set(methods_of_ports()) == set(caller_shards.DECIDED)


def test_a_method_that_nobody_has_thought_about_is_refused(deadline):
    access = Access("reader", {Role.READ: ["b_order"]})
    link = caller_shards.SignIn(VisibleTopics(access, frozenset({Role.READ})))
    with pytest.raises(StoreError, match=r"log\.new"):
        link(ShardMethod("log.new", "log"), None, deadline, lambda *_: pytest.fail("it was asked"))


def test_of_many_records_the_foreign_ones_are_blanks_and_one_alone_is_absent(records, fan_out, deadline):
    """A blank is no error: a hash hit of a foreign topic must not make an answer PARTIAL."""
    access = Access("reader", {Role.READ: ["b_order"]})
    source = CallerShards(Shards([MemoryShard(records).shard()], fan_out))
    offsets = [record.commit_log_offset for record in records]
    hidden = []
    with work_for(VisibleTopics(access, READ, lambda: hidden.append(1))):
        (shard,) = source.now()

    outcomes = get_records(shard, offsets, 1 << 30, deadline)
    own = [record.commit_log_offset for record in records if record.topic == "b_order"]
    foreign = next(record for record in records if record.topic != "b_order")

    assert 0 < len(own) < len(offsets)
    assert [outcome.commit_log_offset for outcome in outcomes if outcome.topic] == own
    for blank in (outcome for outcome in outcomes if not outcome.topic):
        assert {field.name for field, _ in blank.ListFields()} == {
            *("commit_log_offset", "store_time", "queue_id", "queue_offset")
        }
    with pytest.raises(RecordNotFoundError) as refused:
        get_record(shard, foreign.commit_log_offset, deadline)
    with pytest.raises(RecordNotFoundError) as absent:
        get_record(shard, foreign.commit_log_offset + 7, deadline)
    assert hidden == [1]
    assert refused.value.message == f"nothing starts at {foreign.commit_log_offset}"
    assert absent.value.message == f"nothing starts at {foreign.commit_log_offset + 7}"
    assert (refused.value.metadata, list(refused.value.metadata)) == (
        {"commitLogOffset": str(foreign.commit_log_offset)},
        list(absent.value.metadata),
    )
    assert set(topics_of(shard, deadline)) <= {"b_order"}
    assert {queue.topic for queue in list_queues(shard, None, deadline)} == {"b_order"}
    with pytest.raises(PermissionDeniedError):
        get_units(shard, foreign.topic, 0, 0, 1, deadline)
    with pytest.raises(PermissionDeniedError):
        search_key(shard, foreign.topic, "k", TimeWindow(), below_offset=None, count_max=1, deadline=deadline)


def test_shards_are_shown_to_nobody_without_a_caller():
    fan_out = FanOut(1)
    try:
        with pytest.raises(StoreError, match="without a caller"):
            CallerShards(Shards([MemoryShard([]).shard()], fan_out)).now()
    finally:
        fan_out.close()


def test_an_admins_call_is_recorded_with_the_topic_and_the_group_that_it_names():
    lines = []
    audit = Audit(lambda event, **fields: lines.append((event, fields)), lambda: 0.0)

    audit.admin("chief", "ipv4:1", "/s/ResetOffsets", "orders", "billing")
    audit.admin("chief", "ipv4:1", "/s/GetStatus")

    assert [(fields.get("topic"), fields.get("group")) for _, fields in lines] == [("orders", "billing"), (None, None)]
