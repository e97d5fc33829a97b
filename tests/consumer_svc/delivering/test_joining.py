"""What a shard says of a group that it has to be told of: `known_only`, and settings that nobody has set."""

from collections.abc import Callable

import pytest

from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import GroupDisabledError, GroupNotFoundError, InvalidArgumentError
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog

ASK = pop_of("g", "t", known_only=True)
Begin = Callable[..., LogLife]


def bodies(life: LogLife, wanted: pb.PopMessagesRequest = ASK) -> list[bytes]:
    """What a pop hands out."""
    return [one.message.body for one in life.pop(wanted)]


def refused(life: LogLife, wanted: pb.PopMessagesRequest = ASK) -> str:
    """What a refusal says of where groups begin."""
    with pytest.raises(GroupNotFoundError) as caught:
        life.pop(wanted)
    return str(caught.value.metadata["beginsAtEnd"])


def test_a_pop_of_a_group_that_is_not_known_is_refused_before_it_gets_a_message(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"m")
    assert refused(life) == "false"
    assert not life.states.groups
    life.groups.update(GroupSettings("g"), if_unset=True)
    assert bodies(life) == [b"m"]


def test_a_pop_that_finds_nothing_needs_no_group(life: LogLife, log: MemoryLog) -> None:
    log.configure("t")
    assert bodies(life) == []
    assert not life.states.groups


def test_a_pop_where_groups_begin_at_the_end_is_refused_until_it_has_begun(log: MemoryLog, begin: Begin) -> None:
    life = begin(begins_at_end=True)
    log.send("t", b"before")
    assert refused(life) == "true"
    life.groups.update(GroupSettings("g"), if_unset=True)
    assert refused(life) == "true", "it is known, and has not begun in the topic"
    life.pulls.commit("g", [("t", 0, 0)], begins=True, known_only=True)
    assert bodies(life) == [b"before"]
    assert refused(life, pop_of("g", "u", known_only=True)) == "true"


def test_a_send_back_where_groups_begin_at_the_end_is_refused_until_it_has_begun(log: MemoryLog, begin: Begin) -> None:
    """Only the gateway knows whether the group has begun in another shard: then no queue here begins at its end."""
    life = begin(begins_at_end=True)
    for topic in ("t", "%RETRY%g"):
        for queue_id in (0, 1):
            log.send(topic, b"m", queue_id=queue_id)

    def send_back(topic: str = "t") -> object:
        return life.send_backs.send_back(QueueRef("g", topic, 0), [0], 1, known_only=True)

    for topic, expected in (("t", "true"), ("%RETRY%g", "false")):
        with pytest.raises(GroupNotFoundError) as caught:
            send_back(topic)
        assert caught.value.metadata["beginsAtEnd"] == expected
    life.groups.update(GroupSettings("g"), if_unset=True)
    with pytest.raises(GroupNotFoundError):
        send_back()
    assert not life.pulls.offsets("g", "t")
    life.pulls.commit("g", [("t", 0, 0)], begins=True, known_only=True)
    send_back()
    send_back("%RETRY%g")
    assert dict(life.pulls.offsets("g", "t")) == {QueueRef("g", "t", 0): 0}, "queue 1 is read from its first message"


def test_retry_topics_have_no_beginning_of_their_own(log: MemoryLog, begin: Begin) -> None:
    life = begin(begins_at_end=True)
    log.send("%DLQ%g", b"dead")
    life.groups.update(GroupSettings("g"), if_unset=True)
    assert bodies(life, pop_of("g", "%DLQ%g", known_only=True)) == [b"dead"]


CALLS: dict[str, Callable[[LogLife], object]] = {
    "commit": lambda life: life.pulls.commit("g", [("t", 0, 0)], known_only=True),
    "reset": lambda life: life.pulls.reset("g", "t", {0: 0}, dry_run=False, known_only=True),
    "send back": lambda life: life.send_backs.send_back(QueueRef("g", "t", 0), [0], 1, known_only=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_call_makes_a_group_that_must_be_known(log: MemoryLog, life: LogLife, call: str) -> None:
    log.send("t", b"m")
    with pytest.raises(GroupNotFoundError):
        CALLS[call](life)
    assert not life.states.groups
    life.groups.update(GroupSettings("g"), if_unset=True)
    CALLS[call](life)


SET = GroupSettings("g", delivery_attempts_max=3, consume_enabled=False)


def test_settings_that_follow_replace_defaults_and_never_what_somebody_has_set(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"m")
    life.pulls.commit("g", [("t", 0, 0)])
    assert not life.groups.settings("g").is_set
    life.groups.update(SET, if_unset=True)
    assert life.groups.settings("g").is_set
    assert life.states.groups["g"].settings == SET
    for other in (GroupSettings("g"), GroupSettings("g", delivery_attempts_max=9)):
        life.groups.update(other, if_unset=True)
        assert life.states.groups["g"].settings == SET
    with pytest.raises(GroupDisabledError):
        bodies(life)
    life.groups.update(GroupSettings("g", delivery_attempts_max=9))
    assert bodies(life) == [b"m"]


def test_a_group_that_began_in_many_queues_could_begin_in_a_part_of_them(log: MemoryLog, begin: Begin) -> None:
    """It was 1,000 at a time: a kill in between left the rest to begin elsewhere, and the group was taken to have begun."""
    life = begin()
    life.groups.update(GroupSettings("g"), if_unset=True)
    life.pulls.commit("g", [("t", 3, 7)])
    before = len(log.requests)
    life.pulls.begin("g", "t", [-1 if queue_id == 1 else queue_id for queue_id in range(3_000)], known_only=True)
    assert len(log.requests) == before + 1
    expected = {QueueRef("g", "t", queue_id): queue_id for queue_id in range(3_000) if queue_id != 1}
    expected[QueueRef("g", "t", 3)] = 7
    assert dict(life.pulls.offsets("g", "t")) == expected
    life.close()
    life = begin()
    assert dict(life.pulls.offsets("g", "t")) == expected
    life.pulls.begin("g", "t", [9, 9])
    assert dict(life.pulls.offsets("g", "t")) == expected | {QueueRef("g", "t", 1): 9}


@pytest.mark.parametrize(("topic", "offsets"), [("", [0]), ("t", []), ("t", [-2]), ("t", [0] * 65_537)])
def test_a_beginning_that_cannot_be_is_refused(life: LogLife, topic: str, offsets: list[int]) -> None:
    with pytest.raises(InvalidArgumentError, match="queues"):
        life.pulls.begin("g", topic, offsets)
    assert not life.states.groups


def test_a_group_without_a_position_in_a_topic_gets_nothing_of_it_before_it_begins(
    log: MemoryLog, life: LogLife
) -> None:
    begun_only = pop_of("g", "t", begun_only=True)
    log.send("t", b"m")
    assert refused(life, begun_only) == "false"
    life.groups.update(GroupSettings("g"), if_unset=True)
    assert refused(life, begun_only) == "false"
    life.pulls.begin("g", "t", [0])
    assert bodies(life, begun_only) == [b"m"]
    life.groups.delete("g")
    assert refused(life, begun_only) == "false"
    assert bodies(life, pop_of("g", "%RETRY%g", begun_only=True)) == []
