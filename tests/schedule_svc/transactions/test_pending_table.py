"""The table of what waits says what a plain dict says, whatever happens to it; and positions lose no op record."""

import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schedule_svc.transactions.half_messages import CheckRules, HalfMessage, asked_group, key_hash
from schedule_svc.transactions.loading import PAIR_COUNT_MAX, OpPositions
from schedule_svc.transactions.pending_table import ROW_BYTES, TRIM_COUNT_MIN, PendingTable

RULES = CheckRules(timeout_millis=100, interval_millis=1_000, count_max=3)
TOPICS = ("A", "B")
KEYS = ("k1", "k2", "k3")
HALVES = st.builds(
    HalfMessage,
    st.sampled_from(TOPICS),
    st.sampled_from(KEYS),
    st.integers(0, 3_000),
    st.integers(0, 3_000),
    st.integers(0, 4),
    st.just(""),
    st.sampled_from(("", "A", "g")),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 3_000)),
        st.tuples(st.just("fill"), st.integers(0, 60), HALVES),
        st.tuples(st.just("end"), st.integers(0, 60), st.none()),
        st.tuples(st.just("end before"), st.integers(0, 60), st.none()),
        st.tuples(st.just("pass"), st.integers(0, 2), st.none()),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 5_000), st.sets(st.sampled_from((*TOPICS, *map(asked_group, ("A", "B", "g"))))))
def test_it_says_what_a_dict_says(steps: list[tuple[str, int, Any]], now: int, asked: set[str]) -> None:
    table = PendingTable(RULES, 5)
    model: dict[int, tuple[int, HalfMessage | None]] = {}  # stored, details
    next_offset = 5
    for name, number, value in steps:
        if name == "add":
            next_offset += number
            table.add(next_offset, next_offset * 10, value)
            model[next_offset] = (value, None)
            next_offset += 1
        elif name == "pass":
            next_offset += number + 1
            table.pass_ended(next_offset - 1)
        elif name == "fill":
            table.fill(number, value)
            if number in model:
                model[number] = (value.store_millis, value)
        elif name == "end":
            assert table.end(number) == (model.pop(number, None) is not None)
        else:
            gone = [offset for offset in model if offset < number]
            assert table.end_before(number) == len(gone)
            for offset in gone:
                del model[offset]

    known = {offset: half for offset, (_, half) in model.items() if half is not None}
    assert len(table) == len(model)
    assert table.next_queue_offset == next_offset
    assert table.first_queue_offset == min(model, default=next_offset)
    assert table.first_commit_log_offset == min(model, default=-0.1) * 10
    assert table.unread_count == len(model) - len(known)
    assert {offset for offset in range(next_offset) if table.waits(offset)} == set(model)
    for offset in model:
        assert table.commit_log_offset(offset) == offset * 10
    for topic in TOPICS:
        for key in KEYS:
            expected = [offset for offset, half in known.items() if (half.topic, half.unique_key) == (topic, key)]
            assert table.find(topic, key) == expected
    unread = [offset for offset, (stored, half) in model.items() if half is None and stored < now]
    assert table.unread(3, now) == unread[:3]
    due = [
        (offset, half.topic, is_check)
        for offset, half in known.items()
        for is_check in [is_check_due(half, now, asked)]
        if is_check or half.store_millis < now - 2_000
    ]
    assert [tuple(one) for one in table.due(now, asked, now - 2_000, 1_000)] == due
    for topic in ("", *TOPICS):
        rows = sorted(
            (half.made_millis, key_hash(half.topic, half.unique_key), offset)
            for offset, half in known.items()
            if topic in ("", half.topic)
        )
        assert [row[:2] for row in table.page(topic, (-1, -1), 1_000)] == [row[:2] for row in rows]
        assert paged(table, topic) == {row[:2] for row in rows}
        of_last = [row[:2] for row in rows if known[row[2]].topic == TOPICS[-1]]
        assert [row[:2] for row in table.page(topic, (-1, -1), 1_000, TOPICS[-1].__eq__)] == of_last


def is_check_due(half: HalfMessage, now: int, asked: set[str]) -> bool:
    """Whether a half message is to be checked or given up."""
    can_ask = half.topic in asked if half.producer_group in ("", half.topic) else False
    can_ask |= asked_group(half.producer_group) in asked
    return RULES.next_check_millis(half) <= now and (can_ask or half.check_count >= RULES.count_max)


def paged(table: PendingTable, topic: str) -> set[tuple[int, int]]:
    """The places of all pages of two."""
    after, places = (-1, -1), set()
    while rows := table.page(topic, after, 2):
        after = rows[-1][:2]
        places |= {row[:2] for row in rows}
    return places


def test_memory_is_what_the_rows_take() -> None:
    table = PendingTable(RULES)
    for offset in range(20_000):
        table.add(offset, offset, 0)
        table.fill(offset, HalfMessage("T", str(offset), 0, 0, 0, ""))
    size = sum(sys.getsizeof(getattr(table, name)) for name in table._columns())
    assert size <= ROW_BYTES * 20_000 * 1.2
    for offset in range(20_000 - TRIM_COUNT_MIN // 2):
        table.end(offset)
    size = sum(sys.getsizeof(getattr(table, name)) for name in table._columns())
    assert size <= ROW_BYTES * TRIM_COUNT_MIN * 2
    assert table.first_queue_offset == 20_000 - TRIM_COUNT_MIN // 2


@given(st.lists(st.one_of(st.just(-1), st.integers(0, 40)), max_size=200), st.integers(0, 50))
@settings(deadline=None)
def test_no_op_record_of_a_half_message_lies_before_the_position(steps: list[int], looked: int) -> None:
    """-1 sends a half message; a number ends the half message of this queue offset, if it was sent."""
    positions, halves = OpPositions(0, 0), 0
    ops: list[int] = []  # the half message of each op record
    for step in steps:
        if step < 0:
            halves += 1
        elif step < halves:
            ops.append(step)
        positions.note(halves, len(ops))
    first = min(looked, halves)
    begin = positions.op_offset(first)
    assert all(half < first for half in ops[:begin])
    assert begin == len(ops) or looked < halves


def test_positions_stay_few_and_right() -> None:
    positions = OpPositions(0, 0)
    for count in range(10 * PAIR_COUNT_MAX):
        positions.note(count, 3 * count)
    assert len(positions._halves) <= PAIR_COUNT_MAX + 1
    for first in range(0, 10 * PAIR_COUNT_MAX, 997):
        assert 0 <= positions.op_offset(first) <= 3 * first
    assert positions.op_offset(10 * PAIR_COUNT_MAX - 1) == 3 * (10 * PAIR_COUNT_MAX - 1)
