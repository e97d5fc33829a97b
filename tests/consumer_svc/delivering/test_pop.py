"""What a pop hands out, in which order, and what it leaves for the next one."""

import threading
from collections.abc import Callable

import pytest

from consumer_svc.delivering.pop import PASSED_COUNT_MAX, SCANNED_UNIT_COUNT_MAX
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import Moved, QueueRef
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import MessageFilter
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError, UnsupportedStoreError
from store.format.properties import RETRY_TOPIC
from store.format.request_mark import TAIL_SIZE_BYTES
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog

REF = QueueRef("g", "t", 0)


def ask(group: str = "g", topic: str = "t", **fields: object) -> pb.PopMessagesRequest:
    """A pop that hides messages for ten seconds."""
    return pop_of(group, topic, **{"invisible_millis": 10_000, **fields})  # type: ignore[arg-type]


def bodies(life: LogLife, wanted: pb.PopMessagesRequest | None = None) -> list[str]:
    """What a pop hands out."""
    return [one.message.body.decode() for one in life.pop(wanted or ask())]


def ack_all(life: LogLife, wanted: pb.PopMessagesRequest | None = None) -> list[str]:
    """Pop once and acknowledge everything."""
    delivered = life.pop(wanted or ask())
    if delivered:
        life.acks.ack("g", [one.receipt_handle for one in delivered])
    return [one.message.body.decode() for one in delivered]


def test_two_groups_both_get_every_message(log: MemoryLog, life: LogLife) -> None:
    sent = [log.send("t", f"m{number}".encode(), number % 3).body.decode() for number in range(20)]
    assert sorted(bodies(life, ask("g1"))) == sorted(bodies(life, ask("g2"))) == sorted(sent)
    assert bodies(life, ask("g1")) == []


def test_queues_take_turns_so_that_none_starves(log: MemoryLog, life: LogLife) -> None:
    for number in range(40):
        log.send("t", f"{number % 4}".encode(), number % 4)
    assert {one for _ in range(8) for one in bodies(life, ask(max_messages=1))} == {"0", "1", "2", "3"}


def test_a_queue_that_cannot_be_read_takes_no_messages_of_the_others_with_it(log: MemoryLog, life: LogLife) -> None:
    bad = log.send("t", b"bad", 1)
    log.unreadable.add(bad.commit_log_offset)
    for number in range(4):
        log.send("t", f"m{number}".encode(), 0)
    got: list[str] = []
    for _ in range(6):
        try:
            got += ack_all(life, ask(max_messages=32))
        except ServiceUnavailableError:
            continue
    assert got == ["m0", "m1", "m2", "m3"]  # each was delivered, none is in flight for nobody
    assert life.states.in_flight_count() == 0
    log.unreadable.clear()
    assert bodies(life) == ["bad"]


def test_a_poll_of_the_retry_topic_and_one_of_its_topic_do_not_get_the_same_message(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t")
    bodies(life)
    clock.now += 10_000
    life.expire()
    read, inside, other = life.life.reader.records, threading.Event(), []

    def poll_beside(*arguments: object) -> object:
        outcomes = read(*arguments)  # type: ignore[arg-type]
        if not inside.is_set():
            inside.set()
            beside = threading.Thread(target=lambda: other.extend(bodies(life, ask(topic="%RETRY%g_t"))))
            beside.start()
            beside.join(0.3)  # it waits for its turn, so there is nothing to wait for
        return outcomes

    life.life.reader.records = poll_beside  # type: ignore[method-assign, assignment]
    assert bodies(life) == ["x"]
    assert inside.is_set()
    assert other == []


def test_retries_of_a_group_whose_retry_topic_has_the_same_name_are_not_delivered(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("c", b"of a_b")
    life.pop(ask("a_b", "c"))
    clock.now += 10_000
    life.expire()
    (copy,) = log.messages("%RETRY%a_b_c")
    assert copy.properties[RETRY_TOPIC] == "c"
    log.send("b_c", b"of a")
    assert bodies(life, ask("a", "b_c")) == ["of a"]
    assert bodies(life, ask("a_b", "c")) == ["of a_b"]


def test_a_filter_that_takes_nothing_of_a_long_queue_wakes_its_pollers_to_go_on(log: MemoryLog, life: LogLife) -> None:
    for _ in range(SCANNED_UNIT_COUNT_MAX + 100):
        log.send("t", b"no", tags="other")
    log.send("t", b"yes", tags="mine")
    watcher = life.arrivals.watch()
    watcher.take(0)
    wanted = ask(filter=MessageFilter(tags="mine"))
    assert bodies(life, wanted) == []
    assert watcher.take(0).group_topics == {("g", "t")}
    assert bodies(life, wanted) == ["yes"]


def test_a_topic_with_many_queues_is_asked_only_where_something_is(log: MemoryLog, life: LogLife) -> None:
    for queue_id in range(1_000):
        log.send("t", b"old", queue_id)
    while ack_all(life):
        pass
    log.send("t", b"new", 500)
    asked: list[object] = []
    units = life.life.reader.units

    def noted(topic: str, queue_id: int, *rest: object) -> object:
        asked.append(queue_id)
        return units(topic, queue_id, *rest)  # type: ignore[arg-type]

    life.life.reader.units = noted  # type: ignore[method-assign, assignment]
    assert bodies(life) == ["new"]
    assert set(asked) == {500}


def test_a_group_that_begins_at_the_end_gets_the_first_message_of_a_topic_that_had_none(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    assert bodies(life) == []
    log.send("t", b"first")
    assert bodies(life) == ["first"]


def test_a_group_that_begins_at_the_end_misses_what_was_there_before(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    log.send("t", b"old")
    assert bodies(life) == []
    log.send("t", b"new")
    log.send("t", b"of a new queue", 1)
    assert sorted(bodies(life)) == ["new", "of a new queue"]


def test_a_position_behind_the_end_of_its_queue_goes_back_to_the_end(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"before")
    life.pulls.commit("g", [("t", 0, 1_000_000)])
    assert bodies(life) == []
    log.send("t", b"after")
    assert bodies(life) == ["after"]


def test_a_message_that_no_answer_can_hold_is_an_error_and_not_an_empty_answer(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"x" * ((4 << 20) + 1))
    with pytest.raises(UnsupportedStoreError):
        life.pop(ask())


def test_a_record_of_another_place_is_not_delivered(log: MemoryLog, life: LogLife) -> None:
    damaged, other = log.send("t", b"a"), log.send("u", b"b")
    log.records[damaged.commit_log_offset] = other
    with pytest.raises(StoreError, match="leads to a record of"):
        life.pop(ask())


@pytest.mark.parametrize(
    "fields",
    [
        {"client_id": "x" * 5_000},
        {"attempt_id": "é" * 600},
        {"invisible_millis": 13 * 3_600_000},
        {"topic": "t" * 127, "group": "g" * 127},
        {"group": "not a name"},
        {"group": ""},
        {"group": "g" * 256},
    ],
)
def test_a_pop_with_names_that_cannot_be_stored_changes_nothing(
    log: MemoryLog, life: LogLife, fields: dict[str, object]
) -> None:
    log.send("t")
    with pytest.raises(InvalidArgumentError):
        life.pop(ask(**fields))  # type: ignore[arg-type]
    assert life.states.groups == {}


def test_topics_that_do_not_exist_leave_nothing_behind(log: MemoryLog, life: LogLife) -> None:
    bodies(life)
    before = len(life.life._turns), len(life.pops._turns)
    for number in range(100):
        assert bodies(life, ask(topic=f"unknown{number}")) == []
    assert (len(life.life._turns), len(life.pops._turns)) == before


def test_a_pop_beside_a_reset_hands_nothing_out(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    read = life.life.reader.records

    def reset_beside(*arguments: object) -> object:
        life.pulls.reset("g", "t", {0: 0}, dry_run=False)
        life.life.reader.records = read  # type: ignore[method-assign]
        return read(*arguments)  # type: ignore[arg-type]

    life.life.reader.records = reset_beside  # type: ignore[method-assign, assignment]
    assert bodies(life) == []
    assert bodies(life) == ["x"]


def test_a_pop_beside_the_deletion_of_its_group_does_not_bring_it_back(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"a")
    ack_all(life)
    log.send("t", b"b")
    read = life.life.reader.records

    def delete_beside(*arguments: object) -> object:
        life.groups.delete("g")
        life.life.reader.records = read  # type: ignore[method-assign]
        return read(*arguments)  # type: ignore[arg-type]

    life.life.reader.records = delete_beside  # type: ignore[method-assign, assignment]
    assert bodies(life) == []
    assert "g" not in life.states.groups


# -- ordered groups


@pytest.fixture
def fifo(life: LogLife) -> LogLife:
    """A life with the ordered group g."""
    life.groups.update(GroupSettings("g", ordered=True))
    return life


def test_messages_wait_for_the_one_before_them_in_their_message_group_only(log: MemoryLog, fifo: LogLife) -> None:
    for body in ("a1", "a2", "b1"):
        log.send("t", body.encode(), message_group=body[0])
    first = fifo.pop(ask(max_messages=1))
    assert bodies(fifo) == ["b1"]
    fifo.acks.ack("g", [one.receipt_handle for one in first])
    assert bodies(fifo) == ["a2"]


def test_a_full_waiting_room_does_not_deliver_a_message_twice(log: MemoryLog, fifo: LogLife) -> None:
    log.send("t", b"first", message_group="a")
    first = fifo.pop(ask())
    sent = [log.send("t", f"m{number}".encode(), message_group="a") for number in range(PASSED_COUNT_MAX + 50)]
    for _ in range(3):
        assert bodies(fifo) == []
    state = fifo.states.find(REF)
    assert state is not None
    assert len(state.waiting) == PASSED_COUNT_MAX
    assert max(state.waiting) < state.next_offset
    fifo.acks.ack("g", [one.receipt_handle for one in first])
    got: list[str] = []
    while one := ack_all(fifo):
        got += one
    assert got == [message.body.decode() for message in sent]


def test_nothing_overtakes_a_message_whose_queue_unit_is_missing_for_a_while(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(recent_count_max=1)
    life.groups.update(GroupSettings("g", ordered=True))
    log.send("t", b"a1", message_group="a")
    (first,) = life.pop(ask())
    life.acks.give_back("g", first.receipt_handle)
    log.send("u")  # its unit is not in memory any more
    log.send("t", b"a2", message_group="a")
    log.is_building = True
    with pytest.raises(ServiceUnavailableError, match="is being built"):  # it was answered as if there were nothing
        bodies(life)
    log.is_building = False
    assert bodies(life) == ["a1", "a2"]


def test_the_messages_of_a_group_that_broadcasts_went_to_one_member_each(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    life.groups.update(GroupSettings("g", broadcast=True))

    with pytest.raises(InvalidArgumentError, match="has to pull") as refused:
        life.pop(ask())

    assert refused.value.metadata["field"] == "consumer_group"
    assert life.pulls.offsets("g", "") == []


def test_an_answer_that_was_lost_is_given_again_and_hidden_anew(
    log: MemoryLog, clock: ManualClock, fifo: LogLife
) -> None:
    log.send("t", b"a1", message_group="a")
    wanted = ask(attempt_id="one", client_id="c")
    (first,) = fifo.pop(wanted)
    clock.now += 9_000
    (again,) = fifo.pop(wanted)
    assert (again.message, again.delivery_attempt) == (first.message, 1)
    clock.now += 9_000
    fifo.expire()
    assert bodies(fifo, ask(attempt_id="two", client_id="c")) == []
    fifo.acks.ack("g", [again.receipt_handle])
    assert bodies(fifo, wanted) == []


def test_an_attempt_that_is_kept_until_messages_come_gets_them_again_only_until_they_are_acknowledged(
    log: MemoryLog, fifo: LogLife
) -> None:
    """Java's client after 5.2.1 polls with one attempt id until messages came, however often it has to."""
    wanted = ask(attempt_id="one", client_id="c")
    assert [bodies(fifo, wanted) for _ in range(3)] == [[], [], []]
    log.send("t", b"a1", message_group="a")
    (first,) = fifo.pop(wanted)
    (again,) = fifo.pop(wanted)
    assert (again.receipt_handle, again.delivery_attempt) == (first.receipt_handle, 1)
    fifo.acks.ack("g", [again.receipt_handle])
    assert bodies(fifo, wanted) == []
    log.send("t", b"a2", message_group="a")
    assert bodies(fifo, wanted) == ["a2"]


def test_long_message_groups_do_not_make_the_state_too_large_to_write(log: MemoryLog, fifo: LogLife) -> None:
    log.send("t", b"first", message_group="k" * 32_000)
    assert len(fifo.pop(ask())) == 1
    for number in range(500):
        log.send("t", str(number).encode(), message_group="k" * 32_000)
    assert bodies(fifo) == []  # all wait for the first one
    assert max(sum(len(record.body) for record in request) for request in log.requests) < 1 << 20


def test_a_reset_forgets_what_waits_in_the_queue(log: MemoryLog, fifo: LogLife) -> None:
    for body in ("a1", "a2", "a3"):
        log.send("t", body.encode(), message_group="a")
    fifo.pop(ask(max_messages=1))
    assert bodies(fifo) == []
    with fifo.life.lock:
        fifo.life.change([Moved(REF, 0)])
    assert bodies(fifo) == ["a1", "a2", "a3"]


def test_an_ordered_message_that_had_all_its_attempts_makes_room_for_the_next(
    log: MemoryLog, clock: ManualClock, fifo: LogLife
) -> None:
    for body in ("a1", "a2"):
        log.send("t", body.encode(), message_group="a")
    for attempt in (1, 2, 3):
        (one,) = fifo.pop(ask(max_messages=1))
        assert (one.message.body, one.delivery_attempt) == (b"a1", attempt)
        clock.now += 10_000
        fifo.expire()
    assert [(dead.body, dead.reconsume_times) for dead in log.messages("%DLQ%g")] == [(b"a1", 3)]
    assert bodies(fifo) == ["a2"]


def test_lowering_the_attempts_makes_dead_letters_in_requests_that_can_be_written(
    log: MemoryLog, clock: ManualClock, fifo: LogLife
) -> None:
    for number in range(8):
        log.send("t", bytes([number]) * 700_000, message_group=str(number))
    for _ in range(2):
        while fifo.pop(ask()):
            pass
        clock.now += 10_000
        fifo.expire()
    fifo.groups.update(GroupSettings("g", ordered=True, delivery_attempts_max=1))
    for _ in range(20):
        assert bodies(fifo) == []
    assert len(list(log.messages("%DLQ%g"))) == 8
    sizes = [sum(len(record.body) for record in request) for request in log.requests]
    assert max(sizes) < 4 << 20


def test_a_copy_of_a_message_with_the_longest_properties_can_be_stored(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    properties = {"TAGS": "a", **{f"p{number}": "v" * 3_000 for number in range(10)}, "rest": "w" * 2_500}
    log.write([InternalRecord(topic="t", body=b"x", properties=properties)])
    assert bodies(life) == ["x"]
    clock.now += 10_000
    life.expire()
    (copy,) = log.messages("%RETRY%g_t")
    size_bytes = sum(len(name) + len(value) + 2 for name, value in copy.properties.items())
    assert 30_000 < size_bytes <= 32_767 - TAIL_SIZE_BYTES
    assert properties.items() <= copy.properties.items()
    assert bodies(life) == ["x"]
