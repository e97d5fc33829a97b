"""RecentUnits against a dict by brute force."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from services.reading import recent_units
from services.reading.recent_units import RecentUnits
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import NO_UNIT_BIT
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import LightPlace
from tests.support.waiting import WAIT_SECONDS_MAX

KEYS = st.tuples(st.sampled_from(("t", "u")), st.integers(0, 2))
# Batches: for each record its queue, and whether it stands in none.
BATCHES = st.lists(st.lists(st.tuples(KEYS, st.booleans()), max_size=6), max_size=12)


@given(BATCHES, st.integers(1, 12), st.integers(0, 5))
def test_units_are_those_that_were_added_or_none_at_all(
    batches: list[list[tuple[tuple[str, int], bool]]], count_max: int, begin: int
) -> None:
    recent = RecentUnits(count_max)
    recent.set_ends([("t", 0, begin)])
    added: dict[tuple[str, int], dict[int, QueueUnit]] = {}
    ends = {("t", 0): begin} if begin else {}
    offset = 0
    for batch in batches:
        requests: list[DispatchRequest] = []
        for key, is_half in batch:
            at = ends.get(key, 0)
            flag = NO_UNIT_BIT if is_half else 0
            requests.append(DispatchRequest(*key, 0 if is_half else at, offset, 100, offset * 7, 0, (), "", flag, 0))
            if not is_half:
                added.setdefault(key, {})[at] = QueueUnit(offset, 100, offset * 7)
                ends[key] = at + 1
            offset += 100
        queues = recent.add(DispatchColumns.of(requests))
        assert {(topic, queue_id) for topic, ids in queues.items() for queue_id in ids} == {
            key for key, is_half in batch if not is_half
        }
    for (topic, queue_id), end in ends.items():
        assert recent.end(topic, queue_id) == end
        assert recent.ends(topic)[queue_id] == end
        units = added.get((topic, queue_id), {})
        for at in range(end + 2):
            for count in (1, 3, 50):
                found = recent.units(topic, queue_id, at, count)
                columns = recent.columns(topic, queue_id, at, count)
                if found is None:
                    assert columns is None
                    continue
                assert columns is not None
                assert columns.queue_offset == at
                assert columns.commit_log_offsets.tolist() == [unit.commit_log_offset for unit in found]
                assert columns.sizes_bytes.tolist() == [unit.record_size_bytes for unit in found]
                assert list(found) == [units[at + place] for place in range(len(found))]
                assert 1 <= len(found) <= count


def test_memory_is_bounded_by_units_and_by_batches() -> None:
    recent = RecentUnits(100)
    for at in range(recent_units.RUN_COUNT_MAX + 500):
        recent.add(DispatchColumns.of([DispatchRequest("t", at % 50, at // 50, at * 100, 100, 0, 0, (), "", 0, 0)]))
    assert sum(recent.units("t", queue_id, at, 1) is not None for queue_id in range(50) for at in range(400)) == 100
    assert recent.units("t", 0, 0, 1) is None
    assert recent.end("t", 0) > 0


def test_the_ends_of_a_topic_can_be_walked_while_queues_are_added() -> None:
    recent = RecentUnits()
    recent.set_ends([("t", 0, 1)])
    done = threading.Event()

    def add() -> None:
        recent.set_ends(("t", queue_id, 1) for queue_id in range(20_000))
        done.set()

    adding = threading.Thread(target=add)
    ends = recent.ends("t")
    adding.start()
    for _ in ends.items():  # one that changes meanwhile raises RuntimeError
        assert done.wait(WAIT_SECONDS_MAX)
    adding.join(WAIT_SECONDS_MAX)
    assert len(recent.ends("t")) == 20_000


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((0, 0, 0, 2))), max_size=40), st.integers(1, 8))
def test_light_units_are_those_that_were_added_or_lie_before_what_is_said(
    steps: list[tuple[str, int]], count_max: int
) -> None:
    recent = RecentUnits(light_unit_count_max=count_max)
    added: dict[str, dict[int, int]] = {}
    for number, (queue, gap) in enumerate(steps):
        at = max(added.get(queue, {}), default=-1) + 1 + gap
        added.setdefault(queue, {})[at] = number * 100
        place = LightPlace(queue, at)
        recent.add(
            DispatchColumns.of(
                [DispatchRequest("p", 0, number, number * 100, 100, 0, 0, (), "", 0, 0, light_places=(place,))]
            )
        )
    for queue, units in added.items():
        known = recent.light_end(queue)
        assert known in (None, max(units) + 1)
        for at, offset in units.items():
            found = recent.light_units(queue, at, 2)
            if found is None:
                assert offset + 100 <= recent.light_before
            else:
                assert [unit.queue_offset for unit in found] == [each for each in (at, at + 1) if each in units]
                assert found[0].commit_log_offset == offset
        assert recent.light_units(queue, max(units) + 1, 2) in ([], None)
    assert recent.light_units("none", 0, 1) is None
