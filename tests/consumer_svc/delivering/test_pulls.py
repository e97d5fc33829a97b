"""Pulls and positions: status and next offset as `DefaultMessageStore.getMessage` of RocketMQ 5.3.3 has them."""

import pytest

from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import MessageFilter
from store.errors import (
    GroupDisabledError,
    InvalidArgumentError,
    ServiceUnavailableError,
    StoreError,
    TopicNotFoundError,
)
from tests.consumer_svc.asking import pop_of, pull_of, state_of, status_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog, contents


def filled(log: MemoryLog, first: int = 0, count: int = 10) -> None:
    """Queue 0 of topic t with messages from a position on; queue 1 is not there."""
    for number in range(first + count):
        log.send("t", f"m{number}".encode(), tags="a" if number % 2 else "b")
    if first:
        log.remove("t", 0, first)


# getMessage: min 3, end 10. NO_MESSAGE_IN_QUEUE, OFFSET_TOO_SMALL, OFFSET_OVERFLOW_ONE, OFFSET_OVERFLOW_BADLY, FOUND.
@pytest.mark.parametrize(
    ("queue_id", "queue_offset", "status", "next_offset", "count"),
    [
        (0, 3, "FOUND", 10, 7),
        (0, 9, "FOUND", 10, 1),
        (0, 10, "NO_NEW_MSG", 10, 0),
        (0, 11, "OFFSET_ILLEGAL", 10, 0),
        (0, 1 << 60, "OFFSET_ILLEGAL", 10, 0),
        (0, 2, "OFFSET_ILLEGAL", 3, 0),
        (0, 0, "OFFSET_ILLEGAL", 3, 0),
        (0, -1, "OFFSET_ILLEGAL", 3, 0),
        (1, 0, "NO_NEW_MSG", 0, 0),
        (1, 5, "OFFSET_ILLEGAL", 0, 0),
    ],
)
def test_status_and_next_offset_are_those_of_rocketmq(
    log: MemoryLog, life: LogLife, queue_id: int, queue_offset: int, status: str, next_offset: int, count: int
) -> None:
    filled(log, first=3, count=7)
    pulled = life.pulls.pull(pull_of("t", queue_id, queue_offset))
    assert (status_of(pulled.answer), pulled.answer.next_offset, len(pulled.messages)) == (status, next_offset, count)


def test_a_topic_without_messages_is_not_found(life: LogLife) -> None:
    with pytest.raises(TopicNotFoundError):
        life.pulls.pull(pull_of("unknown", 0, 0))


def test_a_filter_that_takes_none_says_where_to_go_on(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    pulled = life.pulls.pull(pull_of("t", 0, 0, filter=MessageFilter(tags="c")))
    assert (status_of(pulled.answer), pulled.answer.next_offset) == ("NO_MATCHED_MSG", 10)
    pulled = life.pulls.pull(pull_of("t", 0, 0, max_messages=2, filter=MessageFilter(tags="a")))
    assert ([one.body for one in pulled.messages], pulled.answer.next_offset) == ([b"m1", b"m3"], 4)


@pytest.mark.parametrize(
    "wanted", [MessageFilter(), MessageFilter(tags="a"), MessageFilter(sql="TAGS = 'a'")], ids=["all", "tags", "sql"]
)
def test_an_answer_is_whole_unless_it_passed_over_a_message_that_is_not_in_the_log(
    log: MemoryLog, life: LogLife, wanted: MessageFilter
) -> None:
    filled(log)
    assert life.pulls.pull(pull_of("t", 0, 0, filter=wanted)).answer.is_whole
    assert life.pulls.pull(pull_of("t", 0, 9, filter=MessageFilter(tags="none"))).answer.is_whole

    # The log has lost the first ones, and the queue does not know it yet.
    for unit in log.queues["t", 0].units[:6]:
        del log.records[unit.commit_log_offset]
    pulled = life.pulls.pull(pull_of("t", 0, 0, filter=wanted))

    assert [one.queue_offset for one in pulled.messages] == ([6, 7, 8, 9] if wanted == MessageFilter() else [7, 9])
    assert (pulled.answer.next_offset, pulled.answer.is_whole) == (10, False)
    assert not life.pulls.pull(pull_of("t", 0, 10)).answer.is_whole


def test_large_messages_that_a_filter_does_not_take_hide_none_behind_them(log: MemoryLog, life: LogLife) -> None:
    """Together they were larger than an answer, and so the first wanted one was called too large."""
    for number in range(5):
        log.send("t", bytes([number]) * (2 << 20), tags="b" if number < 4 else "a")
    pulled = life.pulls.pull(pull_of("t", 0, 0, filter=MessageFilter(sql="TAGS = 'a'")))
    assert ([one.queue_offset for one in pulled.messages], pulled.answer.next_offset, pulled.answer.is_whole) == (
        [4],
        5,
        True,
    )


def test_bodies_are_limited_but_one_message_always_comes(log: MemoryLog, life: LogLife) -> None:
    for number in range(4):
        log.send("t", bytes([number]) * 1_000)
    at, counts = 0, []
    while (pulled := life.pulls.pull(pull_of("t", 0, at, max_bytes=2_500))).messages:
        counts.append(len(pulled.messages))
        at = pulled.answer.next_offset
    assert counts == [2, 2]
    assert len(life.pulls.pull(pull_of("t", 0, 0, max_bytes=1)).messages) == 1


def test_a_queue_that_is_being_built_has_no_new_message_and_skips_none(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    assert life.life.reader.recent is log.recent
    life.life.reader.recent._runs_by_queue.clear()  # nothing is in memory
    log.is_building = True
    pulled = life.pulls.pull(pull_of("t", 0, 4))
    assert (status_of(pulled.answer), pulled.answer.next_offset) == ("NO_NEW_MSG", 4)


def test_a_record_that_cannot_be_read_ends_the_answer_before_it(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    log.unreadable.add(log.queues["t", 0].units[4].commit_log_offset)
    pulled = life.pulls.pull(pull_of("t", 0, 0))
    assert (len(pulled.messages), pulled.answer.next_offset) == (4, 4)
    with pytest.raises(ServiceUnavailableError):
        life.pulls.pull(pull_of("t", 0, 4))


def test_a_committed_position_survives_and_is_where_the_group_goes_on(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    life.pulls.commit("g", [("t", 0, 6), ("t", 1, 0)])
    assert life.pulls.offsets("g", "") == [(QueueRef("g", "t", 0), 6), (QueueRef("g", "t", 1), 0)]
    assert contents(log.state().states) == contents(life.states)


def test_the_same_position_again_takes_nothing_from_its_consumers(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    delivered = life.pop(pop_of("g", "t", invisible_millis=10_000))
    life.acks.ack("g", [one.receipt_handle for one in delivered[1:]])
    life.pulls.commit("g", [("t", 0, 0)])
    assert life.pop(pop_of("g", "t")) == []  # those behind the first are acknowledged, and it is in flight


@pytest.mark.parametrize("offset", [("", 0, 0), ("t", -1, 0), ("t", 0, -1), ("t", 65_536, 0), ("t" * 256, 0, 0)])
def test_positions_that_cannot_be_are_refused_as_a_whole(life: LogLife, offset: tuple[str, int, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        life.pulls.commit("g", [("t", 0, 1), offset])
    with pytest.raises(InvalidArgumentError):
        life.pulls.commit("g", [])
    assert life.states.groups == {}


def test_a_reset_is_clamped_and_a_dry_run_changes_nothing(log: MemoryLog, life: LogLife) -> None:
    filled(log, first=3, count=7)
    life.pulls.commit("g", [("t", 0, 5)])
    before = contents(life.states)
    assert life.pulls.reset("g", "t", {0: 0}, dry_run=True) == [
        pb.ResetOffsetsResponse.Reset(queue_id=0, before=5, after=3)
    ]
    assert contents(life.states) == before
    assert life.pulls.reset("g", "t", {0: 99}, dry_run=False) == [
        pb.ResetOffsetsResponse.Reset(queue_id=0, before=5, after=10)
    ]
    assert life.pulls.offsets("g", "t") == [(QueueRef("g", "t", 0), 10)]


def test_what_a_reset_had_passed_and_another_brought_back_is_not_called_skipped(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    life.pulls.commit("g", [("t", 0, 3)])
    life.pulls.reset("g", "t", {0: 9}, dry_run=False)
    life.pulls.reset("g", "t", {0: 6}, dry_run=False)
    life.pulls.commit("g", [("t", 0, 9)])

    messages = list(log.messages("t"))
    states = [state_of(life.track(messages[at])[0]) for at in (2, 5, 6, 8, 9)]

    assert states == ["CONSUMED", "SKIPPED", "CONSUMED", "CONSUMED", "NOT_CONSUMED"]


def test_an_answer_of_a_position_is_given_only_when_it_is_in_the_log(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    log.appends_left = 0
    for _ in range(2):
        with pytest.raises(StoreError):
            life.pulls.commit("g", [("t", 0, 6)])


def test_a_disabled_group_was_told_that_there_is_nothing(log: MemoryLog, life: LogLife) -> None:
    """Its pulls and pops looked as those of an empty topic. RocketMQ: NO_PERMISSION."""
    filled(log, count=3)
    life.pulls.commit("g", [("t", 0, 1)])
    watcher = life.arrivals.watch()
    watcher.take(0)
    life.groups.update(GroupSettings("g", consume_enabled=False))
    assert watcher.take(0).all, "polls and pulls that wait are refused"

    for offset in (0, 1, 3, 9):
        with pytest.raises(GroupDisabledError, match="subscription group no permission, g") as refused:
            life.pulls.pull(pull_of("t", 0, offset, consumer_group="g"))
        assert refused.value.metadata == {"consumerGroup": "g"}
    for topic in ("t", "no-messages"):
        with pytest.raises(GroupDisabledError):
            life.pop(pop_of("g", topic, max_messages=8, invisible_millis=10_000, client_id="client"))
    assert len(life.pulls.pull(pull_of("t", 0, 1, consumer_group="other")).messages) == 2

    watcher.take(0)
    life.groups.update(GroupSettings("g"))
    assert watcher.take(0).all, "those that wait look again"
    assert len(life.pulls.pull(pull_of("t", 0, 1, consumer_group="g")).messages) == 2


def test_messages_before_the_place_where_a_group_began_were_called_consumed(log: MemoryLog, life: LogLife) -> None:
    filled(log, count=8)
    messages = life.pulls.pull(pull_of("t", 0, 0)).messages
    life.pulls.commit("g", [("t", 0, 5)], begins=True)
    life.pulls.commit("g", [("t", 0, 7)])

    states = [state_of(life.track(messages[at])[0]) for at in (0, 4, 5, 6, 7)]

    assert states == ["SKIPPED", "SKIPPED", "CONSUMED", "CONSUMED", "NOT_CONSUMED"]
    assert contents(log.state().states) == contents(life.states)


def test_a_member_that_began_a_group_took_back_where_another_was(log: MemoryLog, life: LogLife) -> None:
    filled(log)
    life.pulls.commit("g", [("t", 0, 8)])
    life.pulls.commit("g", [("t", 0, 3), ("t", 1, 0)], begins=True)
    assert life.pulls.offsets("g", "t") == [(QueueRef("g", "t", 0), 8), (QueueRef("g", "t", 1), 0)]
