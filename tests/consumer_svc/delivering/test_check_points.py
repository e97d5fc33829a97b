"""Deliveries as RocketMQ's remoting clients name them: handles that a client makes of the numbers of an answer."""

from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration

from consumer_svc.delivering.acks import INVALID, OK, TOO_LATE
from consumer_svc.state.group_states import GroupSettings, RequestMode
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import InvalidArgumentError, InvalidReceiptHandleError, ReceiptHandleNotFoundError
from store.format.delivery.receipt_handle import ExtraInfo, decode_check_point, encode_check_point
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog

ASK = pop_of("g", "t", invisible_millis=10_000, as_check_points=True)


def infos_of(deliveries: list[pb.Delivery]) -> list[tuple[str, ExtraInfo]]:
    return [decode_check_point(each.receipt_handle) for each in deliveries]


def test_the_check_points_of_an_answer_have_one_mark_and_each_acknowledges_its_own_message(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    for number in range(4):
        log.send("t", b"x", number % 2)
    deliveries = life.pop(ASK)
    infos = infos_of(deliveries)
    assert len({(info.pop_millis, info.invisible_millis, info.mark) for _, info in infos}) == 1
    assert infos[0][1].pop_millis == clock.now
    assert infos[0][1].invisible_millis == 10_000
    assert sorted((info.queue_id, info.queue_offset, info.start_offset) for _, info in infos) == [
        *((0, 0, 0), (0, 1, 0)),
        *((1, 0, 0), (1, 1, 0)),
    ]
    assert {(topic, info.topic_kind) for topic, info in infos} == {("t", "0")}
    assert life.acks.ack("g", [deliveries[1].receipt_handle]) == [OK]
    clock.now += 20_000
    life.expire()
    assert len(list(log.messages("%RETRY%g_t"))) == 3


@pytest.mark.parametrize("part", ["pop_millis", "invisible_millis", "mark", "queue_offset", "queue_id", "broker_name"])
def test_a_check_point_of_which_a_part_was_altered_is_refused_and_changes_nothing(
    log: MemoryLog, clock: ManualClock, life: LogLife, part: str
) -> None:
    for _ in range(2):
        log.send("t")
    first, second = life.pop(ASK)
    assert life.pop(ASK) == []
    topic, info = decode_check_point(first.receipt_handle)
    value = getattr(info, part)
    forged = encode_check_point(topic, info._replace(**{part: "other" if isinstance(value, str) else value + 7}))
    assert life.acks.ack("g", [forged])[0] in (INVALID, TOO_LATE)
    with pytest.raises((InvalidReceiptHandleError, ReceiptHandleNotFoundError)):
        life.acks.change_invisible("g", forged, 1_000)
    assert life.acks.ack("g", [first.receipt_handle, second.receipt_handle]) == [OK, OK]


def test_a_check_point_whose_times_were_shifted_against_each_other_is_refused(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    (delivery,) = life.pop(ASK)
    topic, info = decode_check_point(delivery.receipt_handle)
    shifted = info._replace(pop_millis=info.pop_millis - 5, invisible_millis=info.invisible_millis + 5)
    assert life.acks.ack("g", [encode_check_point(topic, shifted)]) == [TOO_LATE]


def test_a_check_point_is_none_of_another_pop_with_the_same_times(log: MemoryLog, life: LogLife) -> None:
    """The clock stands: two pops have the same times, and each has a mark of its own."""
    log.send("t")
    (first,) = life.pop(ASK)
    log.send("t")
    (second,) = life.pop(ASK)
    topic, info = decode_check_point(first.receipt_handle)
    stolen = encode_check_point(
        topic, info._replace(queue_offset=decode_check_point(second.receipt_handle)[1].queue_offset)
    )
    assert life.acks.ack("g", [stolen]) == [TOO_LATE]
    assert life.acks.ack("g", [second.receipt_handle]) == [OK]


def test_a_check_point_of_another_group_is_refused(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    (ours,) = life.pop(ASK)
    (theirs,) = life.pop(pop_of("h", "t", invisible_millis=10_000, as_check_points=True))
    assert life.acks.ack("g", [theirs.receipt_handle]) == [TOO_LATE]
    assert life.acks.ack("h", [ours.receipt_handle]) == [TOO_LATE]
    assert life.acks.ack("g", [ours.receipt_handle]) == [OK]


@pytest.mark.parametrize(
    "text", ["t", "t ", " 0 1 2 3 0 broker 0 0", "t 0 1 2 3 0 broker 0", "t a 1 2 3 0 b 0 0", "t 0"]
)
def test_a_text_that_is_cut_or_has_other_parts_is_no_check_point(log: MemoryLog, life: LogLife, text: str) -> None:
    log.send("t")
    (delivery,) = life.pop(ASK)
    assert life.acks.ack("g", [text, f"{delivery.receipt_handle} 0", "t " + "9" * 3_000]) == [INVALID] * 3
    assert life.acks.ack("g", [delivery.receipt_handle]) == [OK]


def test_a_changed_time_makes_a_new_check_point_and_the_old_one_is_refused(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t")
    (delivery,) = life.pop(ASK)
    clock.now += 1_000
    new = life.acks.change_invisible("g", delivery.receipt_handle, 60_000)
    topic, info = decode_check_point(new)
    assert (topic, info.start_offset, info.pop_millis, info.invisible_millis) == ("t", 0, clock.now, 60_000)
    assert life.acks.ack("g", [delivery.receipt_handle]) == [TOO_LATE]
    clock.now += 30_000
    life.expire()
    assert life.acks.ack("g", [new]) == [OK]
    assert life.acks.ack("g", [new]) == [OK]  # nothing is left to do
    assert list(log.messages("%RETRY%g_t")) == []


def test_a_check_point_is_good_after_a_restart(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    life = begin()
    log.send("t")
    (delivery,) = life.pop(ASK)
    life.close()
    again = begin()
    assert again.acks.ack("g", [delivery.receipt_handle]) == [OK]


def test_a_pop_of_one_queue_with_check_points_brings_retries_too(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.send("t", b"other", 0)
    log.send("t", b"mine", 1)
    one = pop_of("g", "t", invisible_millis=10_000, as_check_points=True, queue_id=1)
    assert [each.message.body for each in life.pop(one)] == [b"mine"]
    clock.now += 20_000
    life.expire()
    (retried,) = life.pop(one)
    topic, info = decode_check_point(retried.receipt_handle)
    assert (retried.message.body, topic, info.topic_kind, retried.delivery_attempt) == (b"mine", "%RETRY%g_t", "1", 2)
    assert life.acks.ack("g", [retried.receipt_handle]) == [OK]


def test_a_pop_in_order_makes_its_group_an_ordered_one(log: MemoryLog, clock: ManualClock, life: LogLife) -> None:
    for _ in range(3):
        log.send("t")
    ask = pop_of("g", "t", invisible_millis=10_000, as_check_points=True, in_order=True, max_messages=2)
    first = life.pop(ask)
    assert [each.message.queue_offset for each in first] == [0, 1]
    assert life.pop(ask) == []  # the queue waits for them
    assert life.groups.settings("g").ordered
    assert life.acks.ack("g", [first[0].receipt_handle]) == [OK]
    clock.now += 20_000
    life.expire()
    again = life.pop(ask)
    assert [(each.message.queue_offset, each.delivery_attempt) for each in again] == [(1, 2), (2, 1)]
    assert list(log.messages("%RETRY%g_t")) == []


def test_an_answer_that_an_ordered_client_lost_has_one_mark_when_it_comes_again(log: MemoryLog, life: LogLife) -> None:
    ask = pop_of("g", "t", invisible_millis=10_000, as_check_points=True, in_order=True, attempt_id="a")
    log.send("t", b"x", 0)
    life.pop(ask)
    log.send("t", b"x", 1)
    life.pop(ask)  # the attempt's first message; the other one is handed out by another attempt
    other = pop_of("g", "t", invisible_millis=10_000, as_check_points=True, in_order=True, attempt_id="b")
    assert len(life.pop(other)) == 1
    again = life.pop(ask)
    assert len({info.mark for _, info in infos_of(again)}) == 1
    assert life.acks.ack("g", [each.receipt_handle for each in again]) == [OK] * len(again)


def test_check_points_need_an_invisible_time(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    for duration in (None, Duration()):
        with pytest.raises(InvalidArgumentError, match="check points need an invisible_duration"):
            life.pop(
                pb.PopMessagesRequest(consumer_group="g", topic="t", as_check_points=True, invisible_duration=duration)
            )


def test_request_modes_of_a_group_outlive_new_settings_and_a_restart(begin: Callable[..., LogLife]) -> None:
    life = begin()
    life.groups.set_mode("g", RequestMode("t", is_pop=True, pop_share_queue_count=2), "")
    life.groups.set_mode("g", RequestMode("t", is_pop=False), "")
    life.groups.set_mode("g", RequestMode("a", is_pop=True), "")
    assert not life.groups.settings("g").is_set
    life.groups.update(GroupSettings("g", ordered=True, delivery_attempts_max=4))
    life.close()
    settings = begin().groups.settings("g")
    assert (settings.ordered, settings.is_set) == (True, True)
    assert [(each.topic, each.is_pop, each.pop_share_queue_count) for each in settings.request_modes] == [
        *(("a", True, 0), ("t", False, 0)),
    ]


def test_request_modes_of_topics_that_are_no_more_left_no_room(
    log: MemoryLog, begin: Callable[..., LogLife], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer_svc.delivering.groups.MODE_COUNT_MAX", 2)
    life = begin()
    for topic in ("a", "b", "c"):
        log.configure(topic)
    life.groups.set_mode("g", RequestMode("a", is_pop=True), "")
    life.groups.set_mode("g", RequestMode("b", is_pop=True), "")
    with pytest.raises(InvalidArgumentError, match="request modes of 2 topics"):
        life.groups.set_mode("g", RequestMode("c", is_pop=True), "")
    log.delete("a")
    life.groups.set_mode("g", RequestMode("c", is_pop=True), "")
    assert [each.topic for each in life.groups.settings("g").request_modes] == ["b", "c"]


def test_the_request_modes_of_a_group_end_with_it(begin: Callable[..., LogLife]) -> None:
    life = begin()
    life.groups.set_mode("g", RequestMode("t", is_pop=True), "")
    life.groups.delete("g")
    life.close()
    life = begin()
    life.groups.update(GroupSettings("g", delivery_attempts_max=4))
    assert not life.groups.settings("g").request_modes
