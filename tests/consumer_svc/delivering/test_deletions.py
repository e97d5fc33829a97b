"""What was deleted with a topic is not delivered when there is a topic of that name again."""

from collections.abc import Callable

import pytest

from consumer_svc.delivering.acks import OK
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from store.errors import DeadlineExceededError, StoreError, TopicNotFoundError, UnsupportedStoreError
from tests.consumer_svc.asking import pop_of, pull_of, state_of, status_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog, contents


def popped(life: LogLife, group: str = "g") -> list[bytes]:
    return [one.message.body for one in life.pop(pop_of(group, "t", invisible_millis=10_000))]


def test_a_topic_that_was_made_again_gave_its_old_messages_to_new_groups(log: MemoryLog, life: LogLife) -> None:
    for queue_id in range(2):
        log.send("t", b"old", queue_id)
    log.delete("t")
    life.deletions.see_now()
    with pytest.raises(TopicNotFoundError):
        popped(life, "between")
    log.send("t", b"new", 1)

    assert popped(life) == popped(life, "between") == [b"new"]
    assert status_of(life.pulls.pull(pull_of("t", 1, 0)).answer) == "OFFSET_ILLEGAL"
    pulled = life.pulls.pull(pull_of("t", 1, 1))
    assert ([one.body for one in pulled.messages], pulled.answer.min_offset) == ([b"new"], 1)


def test_what_was_in_flight_when_its_topic_was_deleted_came_again(
    log: MemoryLog, life: LogLife, begin: Callable[..., LogLife]
) -> None:
    for body in (b"in flight", b"retried", b"waits"):
        log.send("t", body)
    handles = [one.receipt_handle for one in life.pop(pop_of("g", "t", max_messages=2, invisible_millis=10))]
    log.clock.now += 1_000
    life.expire()
    (again, *_) = life.pop(pop_of("g", "t", max_messages=1, invisible_millis=10_000))
    log.delete("t")
    life.deletions.see_now()
    log.send("t", b"new")

    assert OK not in life.acks.ack("g", [*handles, again.receipt_handle])
    log.clock.now += 60_000
    life.expire()
    assert popped(life) == [b"new"]
    after = begin()
    after.deletions.see()
    assert contents(after.states) == contents(life.states)


def test_a_message_behind_the_deletion_that_is_in_flight_stays_so(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"old")
    log.delete("t")
    log.send("t", b"new")
    got = life.pop(pop_of("g", "t", invisible_millis=10_000))  # both: this service has not heard of the deletion

    life.deletions.see_now()

    assert [one.message.body for one in got][-1] == b"new"
    assert life.acks.ack("g", [got[-1].receipt_handle]) == [OK]
    assert popped(life) == []


def test_messages_that_were_deleted_before_the_group_began_were_called_consumed(log: MemoryLog, life: LogLife) -> None:
    log.send("t", b"old")
    (old,) = life.pulls.pull(pull_of("t", 0, 0)).messages
    log.delete("t")
    life.deletions.see_now()
    log.send("t", b"new")
    assert popped(life) == [b"new"]

    assert [state_of(track) for track in life.track(old)] == ["SKIPPED"]


def ask_queues_with(log: MemoryLog, monkeypatch: pytest.MonkeyPatch, failures: list[StoreError]) -> list[str]:
    """The topics that are asked for where a deletion ends, which fails as often as there are failures."""
    asked: list[str] = []
    answer = log.GetQueueUnits

    def get_units(request: queue_pb.GetQueueUnitsRequest) -> queue_pb.GetQueueUnitsResponse:
        if request.log_first_offset:
            asked.append(request.topic)
            if failures:
                raise failures.pop()
        return answer(request)

    monkeypatch.setattr(log, "GetQueueUnits", get_units)
    return asked


@pytest.mark.parametrize("is_now", [False, True])
def test_a_deletion_asked_for_a_queue_as_often_as_it_had_groups(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch, is_now: bool
) -> None:
    for queue_id in range(2):
        log.send("t", b"old", queue_id)
    for number in range(20):
        popped(life, f"g{number}")
    log.delete("t")
    life.life.topics.load()
    asked = ask_queues_with(log, monkeypatch, [])
    if is_now:
        life.deletions.see_now()
    else:
        life.deletions.see()

    assert asked == ["t", "t"]
    assert all(not queue.leases for group in life.states.groups.values() for _, queue in group.queues())


def test_a_queue_that_could_not_be_read_ended_the_life_of_all_groups(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.send("t", b"old")
    popped(life)
    log.delete("t")
    life.life.topics.load()
    asked = ask_queues_with(log, monkeypatch, [DeadlineExceededError("the queues did not answer")])

    life.deletions.see()
    assert life.states.groups["g"].topics["t"][0].leases
    life.deletions.see()
    assert not life.states.groups["g"].topics["t"][0].leases
    assert asked == ["t", "t"]


def test_a_deleted_topic_whose_queues_are_not_served_is_passed_over(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.send("t", b"old")
    popped(life)
    log.delete("t")
    asked = ask_queues_with(log, monkeypatch, [UnsupportedStoreError("batch queues are not served")])

    life.deletions.see_now()
    life.deletions.see()
    assert asked == ["t"]
