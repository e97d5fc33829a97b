"""The list of what waits: records that are lost, records that cannot be read now, and the cost of a page."""

from collections.abc import Callable
from typing import Any

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from schedule_svc.listing import LOOKED_COUNT_MAX, STEP_COUNT_MIN, topics_asked
from store.errors import ServiceUnavailableError
from tests.schedule_svc.memory_life import MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import START_MILLIS

DUE_MILLIS = START_MILLIS + 50_000


def pages(life: MemoryLife, page_size: int, topic: str = "") -> list[list[str]]:
    """The unique keys of all pages."""
    names: list[list[str]] = []
    token = ""
    while not names or token:
        found, token = life.kinds.listing.page(topic, page_size, token)
        names.append([one.message.unique_key for one in found])
    return names


def keys(life: MemoryLife, page_size: int, topic: str = "") -> list[str]:
    """Those of all pages together."""
    return [name for page in pages(life, page_size, topic) for name in page]


def write(log: MemoryLog, life: MemoryLife, records: list[InternalRecord]) -> list[int]:
    """Write what waits; where it is in the log (bytes)."""
    offsets = [result.commit_log_offset for result in log.write(records)]
    life.work()
    return offsets


def counted(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets the name of each call that reads the log or its queues."""
    calls: list[str] = []

    def count(name: str) -> None:
        call: Callable[..., Any] = getattr(log, name)

        def counting(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return call(*args, **options)

        monkeypatch.setattr(log, name, counting)

    count("get_many")
    count("GetQueueUnits")
    return calls


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
@pytest.mark.parametrize("lost", [[0], [0, 1, 2], [2, 3], [5], [0, 5], list(range(6))])
def test_a_lost_record_hides_no_other_message(
    log: MemoryLog, life: MemoryLife, page_size: int, lost: list[int]
) -> None:
    """A page of 1 whose first record of a level was lost was empty, and the last one."""
    offsets = write(log, life, [delayed(f"l{number}", 3) for number in range(6)])
    write(log, life, [delayed("other", 2), timed("t", DUE_MILLIS)])
    for number in lost:
        del log.records[offsets[number]]
    assert keys(life, page_size) == ["other", "t", *(f"l{number}" for number in range(6) if number not in lost)]


@pytest.mark.parametrize("page_size", [1, 2, 100])
def test_a_lost_timer_hides_no_other_timer(log: MemoryLog, life: MemoryLife, page_size: int) -> None:
    offsets = write(log, life, [timed(f"t{number}", DUE_MILLIS + number) for number in range(6)])
    for number in (0, 1, 3):
        del log.records[offsets[number]]
    assert keys(life, page_size) == ["t2", "t4", "t5"]


@pytest.mark.parametrize("page_size", [1, 100])
@pytest.mark.parametrize("waits", [lambda name: delayed(name, 3), lambda name: timed(name, DUE_MILLIS)])
def test_a_record_that_cannot_be_read_now_is_an_error_and_no_shorter_list(
    log: MemoryLog, life: MemoryLife, page_size: int, waits: Callable[[str], InternalRecord]
) -> None:
    """Messages whose records could not be read for a moment were left out, and the list was complete."""
    offsets = write(log, life, [waits(f"m{number}") for number in range(3)])
    log.unreadable.add(offsets[0])
    with pytest.raises(ServiceUnavailableError):
        keys(life, page_size)
    log.unreadable.clear()
    assert keys(life, page_size) == ["m0", "m1", "m2"]


def test_a_level_whose_queue_is_being_built_is_an_error_and_no_shorter_list(
    log: MemoryLog, begin: Callable[..., MemoryLife]
) -> None:
    """Such a level was left out, and the list was complete."""
    write(log, begin(), [delayed("l", 3)])
    life = begin()
    log.is_building = True
    with pytest.raises(ServiceUnavailableError):
        keys(life, 10)
    log.is_building = False
    assert keys(life, 10) == ["l"]


def test_many_lost_records_are_passed_in_large_steps(
    log: MemoryLog, life: MemoryLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = write(log, life, [delayed(f"l{number}", 3) for number in range(STEP_COUNT_MIN * 4)])
    write(log, life, [delayed("last", 3)])
    for offset in lost:
        del log.records[offset]
    calls = counted(log, monkeypatch)
    assert keys(life, 1) == ["last"]
    assert len(calls) < 30


def test_a_small_page_of_a_topic_costs_few_calls(
    log: MemoryLog, life: MemoryLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of 1 took the messages of other topics one by one, with calls for each: up to 10,000 steps of a request."""
    count = STEP_COUNT_MIN * 4
    write(log, life, [timed(f"t{number}", DUE_MILLIS + number, "other") for number in range(count)])
    write(log, life, [delayed(f"l{number}", 1 + number % 3, "other") for number in range(30)])
    write(log, life, [timed("mine", DUE_MILLIS + count, "mine")])
    calls = counted(log, monkeypatch)
    assert keys(life, 1, "mine") == ["mine"]
    assert len(calls) < 60


def test_a_request_looks_at_a_limited_number_of_messages(log: MemoryLog, life: MemoryLife) -> None:
    write(log, life, [timed(f"t{number}", DUE_MILLIS + number, "other") for number in range(LOOKED_COUNT_MAX + 500)])
    write(log, life, [timed("mine", DUE_MILLIS + LOOKED_COUNT_MAX + 500, "mine")])
    assert pages(life, 1, "mine") == [[], ["mine"], []]


def test_timers_that_are_done_change_no_order(log: MemoryLog, life: MemoryLife) -> None:
    """A step with recalled timers was short, and messages that are due later came before the next timers."""
    write(log, life, [timed(f"t{number}", DUE_MILLIS + number * 1_000) for number in range(8)])
    write(log, life, [delayed("l", 3)])  # due after all timers
    for number in range(3):
        life.kinds.recalls.recall("orders", f"t{number}", DUE_MILLIS + number * 1_000)
    assert pages(life, 4) == [["t3", "t4", "t5", "t6"], ["t7", "l"]]


def test_a_page_ends_with_what_was_found_when_its_time_is_nearly_over(log: MemoryLog, life: MemoryLife) -> None:
    """A request for a topic with few messages ran until its deadline and returned nothing."""
    write(log, life, [timed("first", DUE_MILLIS, "mine")])
    write(log, life, [timed(f"t{number}", DUE_MILLIS + 1 + number, "other") for number in range(STEP_COUNT_MIN * 2)])
    write(log, life, [timed("last", DUE_MILLIS + 5_000, "mine")])
    names: list[list[str]] = []
    token = ""
    while not names or token:
        found, token = life.kinds.listing.page("mine", 10, token, lambda: True)
        names.append([one.message.unique_key for one in found])
    assert [name for page in names for name in page] == ["first", "last"]
    assert len(names) > 2


@pytest.mark.parametrize("page_size", [1, 3])
def test_a_page_has_the_messages_of_the_topics_that_are_asked_for(
    log: MemoryLog, life: MemoryLife, page_size: int
) -> None:
    for number in range(40):
        write(log, life, [timed(f"b{number}", DUE_MILLIS + number, "bank")])
    write(log, life, [timed("a", DUE_MILLIS + 50, "shop-a"), delayed("l", 3, "shop-b"), delayed("m", 3, "shop")])
    listing, holds = life.kinds.listing, topics_asked(["shop-*"])
    names, token = [], ""
    while not names or token:
        found, token = listing.page("", page_size, token, holds=holds)
        names.append([one.message.unique_key for one in found])
    assert names == ([["a"], ["l"], []] if page_size == 1 else [["a", "l"]])
