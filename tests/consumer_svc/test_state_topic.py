"""The state is found in the log: over several pages, behind full states that were not finished, and not in damage."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from consumer_svc import state_topic
from consumer_svc.state.group_states import GroupSet, GroupSettings
from consumer_svc.state_topic import STATE_TOPIC, LoadedState, load_state
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1.state_pb2 import Change, StateRecord
from services.following.state_topic import state_log
from services.following.state_topic.state_writer import CHANGE, FULL, FULL_BEGIN, FULL_END
from store.errors import ServiceUnavailableError, StoreCorruptedError, StoreError
from store.format.derived.queue_ext import ext_address
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import TAGS
from tests.consumer_svc.memory_log import LogLife, MemoryLog, contents
from tests.support.waiting import WAIT_SECONDS_MAX


def set_groups(life: LogLife, count: int, prefix: str = "g") -> None:
    """Make groups, each by a change of its own."""
    for number in range(count):
        life.groups.update(GroupSettings(f"{prefix}{number}"))


def load_from(log: MemoryLog, min_offset: int, read: list[QueueUnit] | None = None) -> LoadedState:
    """The state as the log has it when retention removed what is before a position; `read` gets the units that are read."""
    queue = log.queues[STATE_TOPIC, 0]

    def read_bodies(units: Sequence[QueueUnit]) -> list[bytes]:
        if read is not None:
            read.extend(units)
        return [log.records[unit.commit_log_offset].body for unit in units]

    return load_state(min_offset, queue.end, lambda at, count: queue.units[at : at + count], read_bodies)


def test_an_empty_topic_is_an_empty_state(log: MemoryLog) -> None:
    loaded = log.state()
    assert (loaded.states.groups, loaded.epoch, loaded.first_offset, loaded.change_count) == ({}, 0, -1, 0)


@pytest.mark.parametrize("page_count", [1, 2, 3, 7, 1_000])
def test_the_newest_whole_full_state_is_found_over_pages(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch, page_count: int
) -> None:
    monkeypatch.setattr(state_log, "PAGE_UNIT_COUNT", page_count)
    set_groups(life, 5, "a")
    life.life.write_full().result(WAIT_SECONDS_MAX)
    set_groups(life, 5, "b")
    begin_offset = life.life.write_full().result(WAIT_SECONDS_MAX)
    set_groups(life, 4, "c")
    loaded = log.state()
    assert contents(loaded.states) == contents(life.states)
    assert (loaded.first_offset, loaded.change_count, loaded.epoch) == (begin_offset, 4, 1)


def test_only_the_records_from_the_full_state_on_are_read(log: MemoryLog, life: LogLife) -> None:
    set_groups(life, 50)
    life.life.write_full().result(WAIT_SECONDS_MAX)
    set_groups(life, 2, "b")
    read: list[QueueUnit] = []
    load_from(log, 0, read)
    assert len(read) == 1 + 3 + 2, "whose full state it is, its records, and the changes"


@contextmanager
def writing_as_0_2_0(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records are those of that release."""
    with monkeypatch.context() as patched:
        patched.setattr(state_topic, "STATE_LEVEL", 0)
        yield


def write_full_of_0_2_0(life: LogLife, monkeypatch: pytest.MonkeyPatch) -> None:
    """That release knows no priorities: in its full states groups have none."""
    with writing_as_0_2_0(monkeypatch):
        for name, group in list(life.states.groups.items()):
            group.settings = GroupSettings(name)
        life.life.write_full().result(WAIT_SECONDS_MAX)


def factors(log: MemoryLog) -> dict[str, int]:
    return {name: group.settings.priority_factor for name, group in log.state().states.groups.items()}


@pytest.mark.parametrize("page_count", [1, 4, 1_000])
@pytest.mark.parametrize("had_full", [False, True])
def test_a_full_state_of_an_earlier_release_takes_nothing_away_that_the_log_still_has(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch, had_full: bool, page_count: int
) -> None:
    """A downgrade, a full state of that release, and an upgrade made groups of lite topics ordinary ones."""
    monkeypatch.setattr(state_log, "PAGE_UNIT_COUNT", page_count)
    life.groups.update(GroupSettings("early", priority_factor=20))
    if had_full:
        life.life.write_full().result(WAIT_SECONDS_MAX)
    life.groups.update(GroupSettings("late", priority_factor=30))
    write_full_of_0_2_0(life, monkeypatch)
    write_full_of_0_2_0(life, monkeypatch)
    life.groups.update(GroupSettings("after"))

    assert log.state().is_older
    assert factors(log) == {"early": 20, "late": 30, "after": 100}


@pytest.mark.parametrize("had_full", [False, True])
def test_groups_were_forgotten_for_good_behind_very_many_records_of_an_earlier_release(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch, had_full: bool
) -> None:
    """The search ended after 200,000 records, and the older full state was written again as one of this release."""
    life.groups.update(GroupSettings("early", priority_factor=20))
    if had_full:
        life.life.write_full().result(WAIT_SECONDS_MAX)
    write_full_of_0_2_0(life, monkeypatch)
    units = log.queues[STATE_TOPIC, 0].units
    assert [message.tags for message in log.messages(STATE_TOPIC)][-3:] == [FULL_BEGIN, FULL, FULL_END]
    units[-3:-3] = [units[0]] * 201_000  # the begin of a life, without a change
    counts: list[int] = []

    def read_units(at: int, count: int) -> Sequence[QueueUnit]:
        counts.append(count)
        return units[at : at + count]

    loaded = load_state(
        0, len(units), read_units, lambda page: [log.records[unit.commit_log_offset].body for unit in page]
    )

    assert (loaded.is_older, loaded.lacks_newer) == (True, False)
    assert loaded.states.groups["early"].settings.priority_factor == 20
    assert max(counts) <= state_log.PAGE_UNIT_COUNT


def test_an_upgrade_reads_only_what_the_newest_full_state_does_not_say(
    log: MemoryLog, begin: Callable[..., LogLife], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing in the log that the earlier release did not know."""
    with writing_as_0_2_0(monkeypatch):
        before = begin()
        set_groups(before, 50)
    write_full_of_0_2_0(before, monkeypatch)
    with writing_as_0_2_0(monkeypatch):
        set_groups(before, 2, "late")
    read: list[QueueUnit] = []

    loaded = load_from(log, 0, read)

    assert contents(loaded.states) == contents(before.states)
    assert (loaded.is_older, loaded.lacks_newer) == (True, True)
    assert len(read) == 1 + 1 + 3 + 2, "whose full state it is, whose first record, its records, and the changes"


def test_a_state_that_an_earlier_release_began_is_replaced_before_a_downgrade_makes_it_forget(
    log: MemoryLog, begin: Callable[..., LogLife], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier release had no full state yet when it was replaced."""
    with writing_as_0_2_0(monkeypatch):
        begin().groups.update(GroupSettings("early"))
    life = begin()
    assert (life.loaded.is_older, life.loaded.lacks_newer) == (True, False)
    life.life.write_full().result(WAIT_SECONDS_MAX)  # as the follower does
    life.groups.update(GroupSettings("late", priority_factor=30))
    write_full_of_0_2_0(life, monkeypatch)
    assert factors(log) == {"early": 100, "late": 30}


@pytest.mark.parametrize("written_count", [1, 2])
@pytest.mark.parametrize(("had_full", "min_offset"), [(True, 0), (False, 0), (False, 1)])
def test_a_full_state_that_an_earlier_release_did_not_finish_took_settings_away(
    log: MemoryLog,
    begin: Callable[..., LogLife],
    monkeypatch: pytest.MonkeyPatch,
    had_full: bool,
    min_offset: int,
    written_count: int,
) -> None:
    """Its pieces were applied as if they were changes, and groups of lite topics became ordinary ones."""
    life = begin()
    life.groups.update(GroupSettings("early", priority_factor=20))
    if had_full:
        life.life.write_full().result(WAIT_SECONDS_MAX)
    log.appends_left = written_count
    with pytest.raises(ServiceUnavailableError):
        write_full_of_0_2_0(life, monkeypatch)
    log.appends_left = None
    begin().groups.update(GroupSettings("after"))

    groups = load_from(log, min_offset).states.groups

    assert {name: group.settings.priority_factor for name, group in groups.items()} == {"early": 20, "after": 100}


def test_pieces_of_this_release_count_where_retention_removed_all_before_them(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    """A full disk ends a full state, and has retention remove what is needed."""
    life = begin()
    life.groups.update(GroupSettings("early", priority_factor=20))
    log.appends_left = 2
    with pytest.raises(ServiceUnavailableError):
        life.life.write_full().result(WAIT_SECONDS_MAX)
    log.appends_left = None
    begin().groups.update(GroupSettings("after"))
    first = [message.tags for message in log.messages(STATE_TOPIC)].index(FULL)

    loaded = load_from(log, first)

    assert {name: group.settings.priority_factor for name, group in loaded.states.groups.items()} == {
        "early": 20,
        "after": 100,
    }
    assert loaded.first_offset == log.queues[STATE_TOPIC, 0].units[first].commit_log_offset


def test_a_full_state_of_an_earlier_release_counts_where_the_log_has_nothing_better(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.groups.update(GroupSettings("early", priority_factor=20))
    write_full_of_0_2_0(life, monkeypatch)
    life.groups.update(GroupSettings("late", priority_factor=30))
    loaded = load_from(log, 1)

    assert (loaded.is_older, loaded.lacks_newer) == (True, True)
    assert {name: group.settings.priority_factor for name, group in loaded.states.groups.items()} == {
        "early": 100,
        "late": 30,
    }


def test_changes_and_full_states_of_a_later_release_are_counted(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A downgrade says that there is something which it does not know."""
    life.groups.update(GroupSettings("known"))
    assert log.state().states.from_later_count == 0
    later = StateRecord(epoch=1, changes=[Change.FromString(b"\xfa\x3f\x00")])  # its field 1,023
    log.write([InternalRecord(topic=STATE_TOPIC, body=later.SerializeToString(), properties={TAGS: CHANGE})])
    assert log.state().states.from_later_count == 1

    with monkeypatch.context() as patched:
        patched.setattr(state_topic, "STATE_LEVEL", state_topic.STATE_LEVEL + 1)
        life.life.write_full().result(WAIT_SECONDS_MAX)

    loaded = log.state()
    assert (loaded.states.from_later_count, loaded.is_older, list(loaded.states.groups)) == (1, False, ["known"])


def test_a_full_state_of_this_release_is_not_an_older_one(log: MemoryLog, life: LogLife) -> None:
    life.groups.update(GroupSettings("early", priority_factor=20))
    assert not log.state().is_older
    life.life.write_full().result(WAIT_SECONDS_MAX)
    assert not log.state().is_older


@pytest.mark.parametrize("written_count", [0, 1, 2])
@pytest.mark.parametrize("writes_failing", [False, True])
def test_a_full_state_that_was_not_finished_is_passed_over(
    log: MemoryLog, begin: Callable[..., LogLife], written_count: int, writes_failing: bool
) -> None:
    life = begin()
    set_groups(life, 3, "a")
    first_full = life.life.write_full().result(WAIT_SECONDS_MAX)
    set_groups(life, 3, "b")
    log.appends_left, log.writes_failing = written_count, writes_failing
    with pytest.raises(ServiceUnavailableError):
        life.life.write_full().result(WAIT_SECONDS_MAX)
    log.appends_left = None
    after = begin()
    assert contents(after.states) == contents(life.states)
    was_finished = written_count == 2 and writes_failing  # only its last answer was lost
    assert (after.loaded.first_offset == first_full) is not was_finished
    set_groups(after, 1, "c")
    assert contents(log.state().states) == contents(after.states)


def test_a_damaged_record_is_a_typed_error_with_its_place(log: MemoryLog, life: LogLife) -> None:
    set_groups(life, 3)
    unit = log.queues[STATE_TOPIC, 0].units[-1]
    log.records[unit.commit_log_offset].body = b"\xff\xff\xff"
    with pytest.raises(StoreCorruptedError) as caught:
        log.state()
    assert caught.value.metadata["offset"] == str(unit.commit_log_offset)


def test_a_unit_that_is_missing_is_an_error_and_not_a_shorter_state(log: MemoryLog, life: LogLife) -> None:
    set_groups(life, 3)
    queue = log.queues[STATE_TOPIC, 0]
    with pytest.raises(StoreError):
        load_state(0, queue.end, lambda at, count: queue.units[at : at + count][: max(0, 2 - at)], lambda units: [])


def test_a_unit_whose_tags_code_is_not_known_is_an_error_and_not_a_change(log: MemoryLog, life: LogLife) -> None:
    """An address in consumequeue_ext is left in a unit while the queue is being built again."""
    set_groups(life, 3)
    queue = log.queues[STATE_TOPIC, 0]
    units = [queue.units[0]._replace(tags_code=ext_address(0)), *queue.units[1:]]
    with pytest.raises(ServiceUnavailableError, match="consumequeue_ext"):
        load_state(
            0,
            queue.end,
            lambda at, count: units[at : at + count],
            lambda page: [log.records[unit.commit_log_offset].body for unit in page],
        )


def test_a_later_life_has_a_larger_epoch_and_keeps_the_earlier_one_out(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    first, second = begin(), begin()
    with pytest.raises(ServiceUnavailableError):
        first.groups.update(GroupSettings("g"))
    with pytest.raises(ServiceUnavailableError):
        first.life.refuse_if_over()
    second.groups.update(GroupSettings("h"))
    assert set(log.state().states.groups) == {"h"}
    assert log.state().epoch == 2


def test_changes_of_a_full_state_without_end_at_the_very_begin_are_all_read(log: MemoryLog) -> None:
    """Retention may have removed everything before a full state whose end was never written."""
    settings = StateRecord(epoch=1)
    log.write([InternalRecord(topic=STATE_TOPIC, body=settings.SerializeToString(), properties={TAGS: FULL_BEGIN})])
    life = LogLife(log)
    life.groups.update(GroupSettings("g"))
    life.close()
    assert set(log.state().states.groups) == {"g"}
    assert [message.tags for message in log.messages(STATE_TOPIC)] == [FULL_BEGIN, CHANGE, CHANGE]


def test_changes_in_one_request_are_read_in_their_order(log: MemoryLog, life: LogLife) -> None:
    with life.life.lock:
        futures = [
            life.life.change([GroupSet(GroupSettings("g", delivery_attempts_max=number))]) for number in range(99)
        ]
    futures[-1].result(WAIT_SECONDS_MAX)
    assert all(future.done() for future in futures)
    assert log.state().states.groups["g"].settings.delivery_attempts_max == 98


def test_very_many_changes_are_written_in_requests_that_fit(log: MemoryLog, life: LogLife) -> None:
    with life.life.lock:
        life.life.change([GroupSet(GroupSettings(f"{number:0>255}")) for number in range(20_000)]).result(
            WAIT_SECONDS_MAX
        )
    assert max(sum(record.ByteSize() for record in request) for request in log.requests) < 4 << 20
    assert len(log.state().states.groups) == 20_000
