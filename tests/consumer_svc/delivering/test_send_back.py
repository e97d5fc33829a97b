"""Messages that are sent back, beside the records that RocketMQ 5.3.3 wrote for its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from consumer_svc.delivering.moves import sent_back_of
from consumer_svc.delivering.send_back import SENT_BACK_COUNT_MAX
from consumer_svc.live_consumers import PULL_KIND, LiveConsumers
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import SendBackOutcome, TopicSubscription
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import InvalidArgumentError, OffsetOutOfRangeError, ServiceUnavailableError, TopicNotFoundError
from store.format.message_id import decode_offset_msg_id
from store.format.properties import MOVED_FROM
from store.format.record import Record, decode_record
from store.format.topic import SCHEDULE_TOPIC
from tests.consumer_svc.asking import pop_of, state_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog, contents
from tests.support.fixture_stores import unpack_store, walk_frames

REF = QueueRef("g", "t", 0)
OK, DEAD, REMOVED = map(
    SendBackOutcome.Value, [f"SEND_BACK_OUTCOME_{name}" for name in ("OK", "DEAD_LETTER", "REMOVED")]
)


def stored(record: Record) -> StoredMessage:
    """A record of a file as the commit log service gives it."""
    return StoredMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        body=record.body,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        properties=record.properties,
    )


def test_the_record_that_waits_is_the_one_that_rocketmq_wrote(tmp_path: Path) -> None:
    records = {offset: decode_record(frame) for offset, frame in walk_frames(unpack_store("broker", tmp_path))}
    waiting = [
        record
        for record in records.values()
        if record.topic == SCHEDULE_TOPIC and record.properties.get("REAL_TOPIC") == "%RETRY%b_cg"
    ]
    assert len(waiting) >= 5
    for theirs in waiting:
        origin_id = theirs.properties["ORIGIN_MESSAGE_ID"]
        origin = stored(records[decode_offset_msg_id(origin_id)[1]])
        origin.offset_msg_id = origin_id
        ours = sent_back_of(origin, "b_cg", 1, int(theirs.properties["DELAY"]))
        moved_from = ours.properties.pop(MOVED_FROM)
        assert moved_from == f"{origin.queue_id} {origin.queue_offset} {origin.topic}"
        assert dict(ours.properties) == dict(theirs.properties)
        assert (ours.topic, ours.queue_id, ours.reconsume_times, ours.body, ours.flag) == (
            theirs.topic,
            theirs.queue_id,
            theirs.reconsume_times,
            theirs.body,
            theirs.flag,
        )


# consumerSendMsgBack: 0 == delayLevel: 3 + reconsumeTimes; transformDelayLevelMessage: the largest is 18.
@pytest.mark.parametrize(
    ("delay_level", "reconsume_times", "level"),
    [(0, 0, 3), (0, 1, 4), (0, 15, 18), (0, 40, 18), (1, 9, 1), (18, 0, 18), (19, 0, 18), (1 << 30, 0, 18)],
)
def test_the_delay_level_is_the_one_of_rocketmq(
    log: MemoryLog, begin: Callable[..., LogLife], delay_level: int, reconsume_times: int, level: int
) -> None:
    life = begin(attempts_max=100)
    sent = log.send("t", b"m")
    sent.reconsume_times = reconsume_times
    assert life.send_backs.send_back(REF, [0], delay_level) == [OK]
    (waiting,) = log.messages(SCHEDULE_TOPIC)
    assert (waiting.queue_id, waiting.properties["DELAY"]) == (level - 1, str(level))
    assert waiting.reconsume_times == reconsume_times + 1


def test_the_largest_level_is_the_one_of_the_store(log: MemoryLog, life: LogLife) -> None:
    life.life.rules = replace(life.life.rules, delay_level_max=2)
    log.send("t", b"m")
    assert life.send_backs.send_back(REF, [0], 0) == [OK]
    (waiting,) = log.messages(SCHEDULE_TOPIC)
    assert (waiting.queue_id, waiting.properties["DELAY"]) == (1, "2")


# RocketMQ: reconsumeTimes >= retryMaxTimes (attempts less the first), or a negative level.
@pytest.mark.parametrize(("reconsume_times", "delay_level", "is_dead"), [(1, 0, False), (2, 0, True), (0, -1, True)])
def test_a_message_becomes_a_dead_letter_after_its_attempts_or_at_once(
    log: MemoryLog, life: LogLife, reconsume_times: int, delay_level: int, is_dead: bool
) -> None:
    sent = log.send("t", b"m")
    sent.reconsume_times = reconsume_times
    assert life.send_backs.send_back(REF, [0], delay_level) == [DEAD if is_dead else OK]
    dead = list(log.messages("%DLQ%g"))
    assert len(dead) == is_dead == (not list(log.messages(SCHEDULE_TOPIC)))
    for letter in dead:
        assert (letter.body, letter.reconsume_times) == (b"m", reconsume_times + 1)
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == letter.properties["RETRY_TOPIC"] == "t"
        assert letter.properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
        assert letter.properties["DELAY"] == "0"
        assert "1ST_POP_TIME" not in letter.properties


def test_the_attempts_of_the_group_count_and_not_those_of_the_service(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"m")
    life.groups.update(GroupSettings("g", delivery_attempts_max=1))
    assert life.send_backs.send_back(REF, [0], 0) == [DEAD]


def test_a_retry_that_is_sent_back_goes_to_the_same_retry_topic_and_keeps_its_origin(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    sent = log.send("t", b"m")
    life.send_backs.send_back(REF, [0], 0)
    (waiting,) = log.messages(SCHEDULE_TOPIC)
    retry = log.send("%RETRY%g", b"m")
    retry.properties.update(waiting.properties)
    retry.reconsume_times = waiting.reconsume_times
    assert life.send_backs.send_back(QueueRef("g", "%RETRY%g", 0), [0], 0) == [OK]
    second = list(log.messages(SCHEDULE_TOPIC))[-1]
    assert (second.queue_id, second.reconsume_times) == (3, 2)
    assert second.properties["REAL_TOPIC"] == "%RETRY%g"
    assert second.properties["RETRY_TOPIC"] == "t"
    assert second.properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
    assert second.properties[MOVED_FROM] == "0 0 %RETRY%g"


def test_a_message_that_is_sent_back_in_a_group_whose_members_all_pop_comes_where_they_read(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    """The console's "deliver again" never reached consumers over gRPC: it went to the topic of those that pull."""
    clients = LiveConsumers(lambda: 1_000.0)
    life = begin(clients=clients)
    for _ in range(4):
        log.send("t", b"m")
    popper = pb.Client(consumer_group="g", client_id="popper", subscriptions=[TopicSubscription(topic="t")])
    lite_puller = pb.Client(consumer_group="g", client_id="lite", kind=PULL_KIND, subscriptions=popper.subscriptions)
    puller = pb.Client(consumer_group="g", client_id="puller", subscriptions=popper.subscriptions)
    puller.subscriptions.add(topic="%RETRY%g")
    places = []
    for queue_offset, member in enumerate((lite_puller, popper, puller, None)):
        if member is not None:
            clients.keep(member)
        else:
            clients.end("g", "popper")
        life.send_backs.send_back(REF, [queue_offset], 1)
        places.append(list(log.messages(SCHEDULE_TOPIC))[-1].properties["REAL_TOPIC"])

    assert places == ["%RETRY%g", "%RETRY%g_t", "%RETRY%g", "%RETRY%g"]


def test_a_message_that_a_remoting_client_sent_back_came_where_members_that_pop_read(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    clients = LiveConsumers(lambda: 1_000.0)
    life = begin(clients=clients)
    log.send("t", b"m")
    clients.keep(pb.Client(consumer_group="g", client_id="popper", subscriptions=[TopicSubscription(topic="t")]))
    life.send_backs.send_back(REF, [0], 1, for_pullers=True)
    assert list(log.messages(SCHEDULE_TOPIC))[-1].properties["REAL_TOPIC"] == "%RETRY%g"


def test_a_call_that_is_repeated_sends_back_once_also_in_another_life(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    for number in range(4):
        log.send("t", f"m{number}".encode())
    life.pulls.commit("g", [("t", 0, 1)])
    assert life.send_backs.send_back(REF, [1, 2, 1], 0) == [OK, OK, OK]
    life.pulls.commit("g", [("t", 0, 2)])  # before 2 is behind the group's position
    life.close()
    again = begin()
    assert contents(again.states) == contents(life.states)
    assert again.send_backs.send_back(REF, [2, 3], 0) == [OK, OK]
    assert [waiting.body for waiting in log.messages(SCHEDULE_TOPIC)] == [b"m1", b"m2", b"m3"]


@pytest.mark.parametrize("how", ["reset", "commit"])
def test_a_group_that_goes_back_may_send_the_same_message_back_again(log: MemoryLog, life: LogLife, how: str) -> None:
    log.send("t", b"m0")
    log.send("t", b"m1")
    life.pulls.commit("g", [("t", 0, 1)])
    life.send_backs.send_back(REF, [1], 0)
    life.pulls.commit("g", [("t", 0, 2)])
    if how == "reset":
        life.pulls.reset("g", "t", {0: 0}, dry_run=False)
    else:
        life.pulls.commit("g", [("t", 0, 0)])
    life.send_backs.send_back(REF, [1], 0)
    assert [waiting.body for waiting in log.messages(SCHEDULE_TOPIC)] == [b"m1", b"m1"]


def test_the_copy_and_the_change_are_one_request(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"m")
    life.pulls.commit("g", [("t", 0, 0)])
    log.requests.clear()
    life.send_backs.send_back(REF, [0], 0)
    assert [[record.topic for record in request] for request in log.requests] == [
        [SCHEDULE_TOPIC, "rmq_sys_REPUT_CONSUMER_STATE"]
    ]


def test_an_append_whose_answer_is_lost_is_not_carried_out_twice(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    life = begin()
    log.send("t", b"m")
    life.pulls.commit("g", [("t", 0, 0)])
    log.appends_left, log.writes_failing = 0, True
    with pytest.raises(ServiceUnavailableError):
        life.send_backs.send_back(REF, [0], 0)
    log.appends_left = None
    assert begin().send_backs.send_back(REF, [0], 0) == [OK]
    assert len(list(log.messages(SCHEDULE_TOPIC))) == 1


def test_a_removed_message_is_said_and_counted_and_the_others_are_sent_back(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(recent_count_max=1)
    for number in range(3):
        log.send("t", f"m{number}".encode())
    life.pulls.commit("g", [("t", 0, 1)])
    log.remove("t", 0, 2)
    assert life.send_backs.send_back(REF, [1, 2], 0) == [REMOVED, OK]
    state = life.states.find(REF)
    assert state is not None
    assert state.removed_count == 1


@pytest.mark.parametrize(
    ("error", "ref", "queue_offsets"),
    [
        (TopicNotFoundError, QueueRef("g", "unknown", 0), [0]),
        (OffsetOutOfRangeError, QueueRef("g", "t", 7), [0]),
        (OffsetOutOfRangeError, REF, [0, 1]),
        (OffsetOutOfRangeError, REF, [-1]),
        (InvalidArgumentError, REF, []),
        (InvalidArgumentError, REF, [0] * (SENT_BACK_COUNT_MAX + 1)),
        (InvalidArgumentError, QueueRef("no group", "t", 0), [0]),
    ],
)
def test_a_request_that_names_no_message_sends_nothing_back(
    log: MemoryLog, life: LogLife, error: type[Exception], ref: QueueRef, queue_offsets: list[int]
) -> None:
    log.send("t", b"m")
    with pytest.raises(error):
        life.send_backs.send_back(ref, queue_offsets, 0)
    assert not list(log.messages(SCHEDULE_TOPIC))
    assert not life.states.groups


def test_a_message_in_flight_that_is_sent_back_does_not_come_again_in_its_own_queue(
    log: MemoryLog, clock, life: LogLife
) -> None:
    log.send("t", b"m")
    ask = pop_of("g", "t", invisible_millis=10_000)
    assert len(life.pop(ask)) == 1
    life.send_backs.send_back(REF, [0], 0)
    clock.now += 10_000
    life.expire()
    assert life.pop(ask) == []
    assert len(list(log.messages(SCHEDULE_TOPIC))) == 1


def test_a_message_that_was_sent_back_is_done_with_in_its_queue_before_the_position_has_passed_it(
    log: MemoryLog, life: LogLife
) -> None:
    sent = log.send("t", b"m")
    life.pulls.commit("g", [("t", 0, 0)])
    (before,) = life.track(sent)
    life.send_backs.send_back(REF, [0], 0)
    (after,) = life.track(sent)
    assert (state_of(before), state_of(after)) == ("NOT_CONSUMED", "CONSUMED")


def test_a_message_that_is_sent_back_does_not_say_that_those_before_it_are_consumed(
    log: MemoryLog, life: LogLife
) -> None:
    """The group has no position yet: it does not begin at the first message that it could not handle."""
    for number in range(3):
        log.send("t", f"m{number}".encode())
    life.send_backs.send_back(REF, [2], 0)
    assert dict(life.pulls.offsets("g", "t")) == {REF: 0}
    assert [one.message.body for one in life.pop(pop_of("g", "t"))][:2] == [b"m0", b"m1"]


def test_what_retention_removed_before_a_first_send_back_is_not_lost_to_the_group(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(recent_count_max=1)
    for number in range(3):
        log.send("t", f"m{number}".encode())
    log.remove("t", 0, 1)
    life.send_backs.send_back(REF, [2], 0)
    assert dict(life.pulls.offsets("g", "t")) == {REF: 1}
    state = life.states.find(REF)
    assert state is not None
    assert state.removed_count == 0


def test_where_new_groups_begin_at_the_end_a_first_send_back_begins_no_other_queue_at_its_first_message(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    log.send("t", b"before", queue_id=0)
    for queue_id in (1, 2):
        for number in range(3):
            log.send("t", f"old{number}".encode(), queue_id=queue_id)
    life.pulls.commit("g", [("other", 0, 0)])
    life.send_backs.send_back(REF, [0], 0)
    assert dict(life.pulls.offsets("g", "t")) == {REF: 0, QueueRef("g", "t", 1): 3, QueueRef("g", "t", 2): 3}
    log.send("t", b"new", queue_id=1)
    popped = [one.message for one in life.pop(pop_of("g", "t"))]
    assert [message.body for message in popped if message.queue_id] == [b"new"]


def test_a_later_send_back_leaves_queues_that_came_meanwhile_at_their_first_message(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    log.send("t", b"m", queue_id=0)
    life.pulls.commit("g", [("t", 1, 0)])
    log.send("t", b"came", queue_id=2)
    life.send_backs.send_back(REF, [0], 0)
    assert dict(life.pulls.offsets("g", "t")) == {REF: 0, QueueRef("g", "t", 1): 0}
