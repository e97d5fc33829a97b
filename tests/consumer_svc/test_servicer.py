"""What the servicer checks itself."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.life_parts import LifeParts
from consumer_svc.live_consumers import RENEWED_SECONDS, LiveConsumers
from consumer_svc.queue_locks import LOCK_SECONDS, QueueLocks
from consumer_svc.servicer import DELIVERED_COUNT_MAX, ConsumerServicer
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.following.follower_progress import FollowerProgress
from services.local.wire import DELIVERIES, LocalMethod
from services.reading.recent_units import RecentUnits
from store.errors import (
    InvalidArgumentError,
    NotLeaderError,
    ServiceUnavailableError,
    StoreRecoveringError,
    TopicNotFoundError,
)
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog

CONTEXT: Any = None


def test_watchers_hear_of_queues_where_they_are_known_and_of_topics_in_any_case() -> None:
    """One that does not know queues, such as a gateway of an earlier release, looks at the topics."""
    arrivals = Arrivals()
    servicer = ConsumerServicer(
        FollowerProgress(), LiveConsumers(time.monotonic), QueueLocks(time.monotonic), arrivals, lambda: False
    )
    answers = servicer.WatchArrivals(pb.WatchArrivalsRequest(), CONTEXT)
    assert next(answers).all
    arrivals.note_queues({"b": [7, 1], "a": [2], "c": [0]})
    arrivals.note_topics(["c", "d"])
    arrived = next(answers)
    assert arrived.topics == ["a", "b", "c", "d"]
    assert {row.topic: list(row.queue_ids) for row in arrived.queues} == {"b": [1, 7], "a": [2]}
    assert not arrived.all


def test_each_call_of_the_local_wire_is_served_there_and_tracks_are_among_them() -> None:
    """Over gRPC a track took half as long again as a query by key."""
    servicer = ConsumerServicer(
        FollowerProgress(), LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
    )
    assert set(servicer.local_calls()) == {method for method in LocalMethod if method.socket is DELIVERIES}
    assert LocalMethod.TRACK_MESSAGE in servicer.local_calls()


def test_deliveries_that_cannot_be_noted_yet_are_refused_and_the_clients_are_kept() -> None:
    clients = LiveConsumers(time.monotonic)
    servicer = ConsumerServicer(FollowerProgress(), clients, QueueLocks(time.monotonic), Arrivals(), lambda: False)
    client = pb.Client(client_id="c", consumer_group="g")
    with pytest.raises(StoreRecoveringError):
        servicer.KeepClients(pb.KeepClientsRequest(clients=[client], delivered_receipt_handles=["x.y.z"]), CONTEXT)
    assert [member.client_id for member in clients.members("g")] == ["c"]
    with pytest.raises(InvalidArgumentError):
        servicer.KeepClients(
            pb.KeepClientsRequest(delivered_receipt_handles=["x.y.z"] * (DELIVERED_COUNT_MAX + 1)), CONTEXT
        )


def test_locks_outlive_a_life_and_a_queue_with_a_position_waits_for_its_holder_after_a_start(
    log: MemoryLog, life: LogLife
) -> None:
    log.send("t")
    log.configure("t", queue_count=2)
    life.pulls.commit("g", [("t", 0, 0)])

    def started() -> ConsumerServicer:
        servicer = ConsumerServicer(
            FollowerProgress(), LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
        )
        servicer.open(LifeParts.of(life.life))
        return servicer

    def locked(servicer: ConsumerServicer, client_id: str, **named: bool) -> list[int]:
        queues = [gateway_pb.TopicQueue(topic="t", queue_id=queue_id) for queue_id in range(2)]
        request = pb.LockQueuesRequest(consumer_group="g", client_id=client_id, queues=queues, **named)
        return [each.queue_id for each in servicer.LockQueues(request, CONTEXT).queues]

    servicer = started()
    assert locked(servicer, "b") == [1]  # nobody has consumed queue 1
    assert locked(servicer, "a", renew=True) == [0]
    servicer.shut()
    with pytest.raises(StoreRecoveringError):
        locked(servicer, "a")
    servicer.open(LifeParts.of(life.life))
    assert locked(servicer, "b", renew=True) == [1]
    assert locked(servicer, "a", unlock=True) == []
    assert locked(servicer, "b") == [0, 1]


class Replica:
    """A consumer service whose process began with the test, on a clock that stands at `now`."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.clients = LiveConsumers(lambda: self.now)
        locks = QueueLocks(lambda: self.now)
        self.servicer = ConsumerServicer(FollowerProgress(), self.clients, locks, Arrivals(), lambda: False)

    def locks(self, client_id: str, **named: bool) -> bool:
        queues = [gateway_pb.TopicQueue(topic="t")]
        request = pb.LockQueuesRequest(consumer_group="g", client_id=client_id, queues=queues, **named)
        return bool(self.servicer.LockQueues(request, CONTEXT).queues)


def test_after_a_change_of_leaders_a_locked_queue_was_given_to_a_second_member(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    """The service of a replica runs for hours before its log leads; its careful start was over then."""
    log.send("t")
    log.configure("t")
    begin().pulls.commit("g", [("t", 0, 0)])
    one, other = Replica(), Replica()
    other.servicer.open(LifeParts.of(begin(leadership=None).life))
    one.servicer.open(LifeParts.of(begin(leadership=1).life))
    one.now = other.now = 5_000.0
    assert one.locks("a")
    other.servicer.open(LifeParts.of(begin(leadership=2).life))
    assert not other.locks("b")
    assert other.locks("a", renew=True)
    # The first one leads again: what it knew is older than what the other one has given since.
    one.now = other.now = 5_050.0
    one.servicer.open(LifeParts.of(begin(leadership=3).life))
    assert not one.locks("b")
    one.servicer.open(LifeParts.of(begin(leadership=3).life))  # a new life of the same leadership
    one.now = 5_050.0 + LOCK_SECONDS
    assert one.locks("b")
    one.servicer.open(LifeParts.of(begin(leadership=3).life))
    assert not one.locks("a", renew=True)


def test_after_a_change_of_leaders_what_was_in_work_was_taken_for_abandoned(begin: Callable[..., LogLife]) -> None:
    replica = Replica()
    replica.servicer.open(LifeParts.of(begin(leadership=None).life))
    replica.now = 5_000.0
    assert not replica.clients.is_renewed("g", "c")
    replica.servicer.open(LifeParts.of(begin(leadership=2).life))
    assert replica.clients.is_renewed("g", "c")
    replica.now += RENEWED_SECONDS
    assert not replica.clients.is_renewed("g", "c")


def test_a_replica_that_does_not_lead_yet_told_positions_of_its_start(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    log.send("t")
    log.configure("t")
    begin().pulls.commit("g", [("t", 0, 0)])
    replica = Replica()
    replica.servicer.open(LifeParts.of(begin(leadership=None).life))
    replica.clients.keep(pb.Client(client_id="c", consumer_group="g"))
    servicer = replica.servicer
    for ask in (
        lambda: servicer.GetOffsets(pb.GetOffsetsRequest(consumer_group="g"), CONTEXT),
        lambda: servicer.GetGroup(pb.GetGroupRequest(consumer_group="g"), CONTEXT),
        lambda: servicer.ListGroups(pb.ListGroupsRequest(), CONTEXT),
        lambda: servicer.TrackMessage(pb.TrackMessageRequest(), CONTEXT),
        lambda: servicer.ResetOffsets(pb.ResetOffsetsRequest(consumer_group="g", topic="t", dry_run=True), CONTEXT),
        lambda: replica.locks("c"),
    ):
        with pytest.raises(NotLeaderError):
            ask()
    assert not servicer.KeepClients(pb.KeepClientsRequest(clients=[pb.Client(consumer_group="g")]), CONTEXT).groups
    assert servicer.lag_counts() == {}
    # Messages are the same on every replica.
    assert len(servicer.PullMessages(pb.PullMessagesRequest(topic="t"), CONTEXT).messages) == 1


def test_queues_that_do_not_exist_were_locked_and_kept(log: MemoryLog, life: LogLife) -> None:
    locks = QueueLocks(time.monotonic)
    servicer = ConsumerServicer(FollowerProgress(), LiveConsumers(time.monotonic), locks, Arrivals(), lambda: False)
    servicer.open(LifeParts.of(life.life))
    log.send("t", queue_id=5)  # a queue that has messages exists, whatever the topic table says
    log.configure("t", queue_count=2)

    def lock(*queues: tuple[str, int], unlock: bool = False) -> list[list[tuple[str, int]]]:
        rows = [gateway_pb.TopicQueue(topic=topic, queue_id=queue_id) for topic, queue_id in queues]
        request = pb.LockQueuesRequest(consumer_group="g", client_id="a", queues=rows, unlock=unlock)
        answer = servicer.LockQueues(request, CONTEXT)
        return [[(each.topic, each.queue_id) for each in some] for some in (answer.queues, answer.unknown_queues)]

    assert lock(("t", 1), ("t", 2), ("t", 5), ("invented", 0)) == [[("t", 1), ("t", 5)], [("t", 2), ("invented", 0)]]
    assert lock(*(("invented", at) for at in range(1_024)))[0] == []
    assert lock(("invented", 0), unlock=True) == [[], []]
    assert len(locks._locks) == 2
    log.configure("invented", queue_count=1)
    assert lock(("invented", 0)) == [[("invented", 0)], []]


def test_a_lock_for_a_name_that_is_no_group_is_refused(life: LogLife) -> None:
    servicer = ConsumerServicer(
        FollowerProgress(), LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
    )
    servicer.open(LifeParts.of(life.life))
    request = pb.LockQueuesRequest(consumer_group="no group", client_id="a", queues=[gateway_pb.TopicQueue(topic="t")])
    with pytest.raises(InvalidArgumentError):
        servicer.LockQueues(request, CONTEXT)


def test_an_answer_to_a_pull_says_what_of_the_log_it_has_seen(log: MemoryLog, life: LogLife) -> None:
    progress = FollowerProgress()
    servicer = ConsumerServicer(
        progress, LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
    )
    servicer.open(LifeParts.of(life.life))
    log.send("t")
    progress.retreat(500, 0)

    def seen(topic: str, queue_offset: int) -> int:
        request = pb.PullMessagesRequest(topic=topic, queue_offset=queue_offset)
        return servicer.PullMessages(request, CONTEXT).seen_offset

    assert [seen("t", 0), seen("t", 1), seen("t", 2)] == [500, 500, 500]
    with pytest.raises(TopicNotFoundError) as refused:
        seen("other", 0)
    assert refused.value.metadata["seenOffset"] == "500"
    # The log has a message whose unit is not there: its place in the log is not known.
    life.life.reader.recent.set_ends([("t", 0, 2)])
    assert seen("t", 1) == 0


def behind(log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch) -> ConsumerServicer:
    """A service that has seen two messages of `t`, while the log has five, and sees the others when it is waited for."""
    progress = FollowerProgress()
    servicer = ConsumerServicer(
        progress, LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
    )
    servicer.open(LifeParts.of(life.life))
    log.send("t")
    log.send("t")
    recent, log.recent = log.recent, RecentUnits()  # the log tells nothing to the service from here on
    progress.retreat(log.end, 0)
    for _ in range(3):
        log.send("t")

    def wait_past(offset: int, seconds: float) -> bool:
        assert offset == log.end - 1
        recent.set_ends([("t", 0, 5)])
        return True

    monkeypatch.setattr(progress, "wait_past", wait_past)
    return servicer


def test_a_reset_to_latest_left_messages_that_the_log_had_before_it(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer = behind(log, life, monkeypatch)
    life.pulls.commit("g", [("t", 0, 0)])
    request = pb.ResetOffsetsRequest(consumer_group="g", topic="t", latest=True)
    assert [each.after for each in servicer.ResetOffsets(request, CONTEXT).resets] == [5]


def test_a_position_at_the_end_of_the_queue_was_taken_back_by_a_pop(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues' service may know messages that the consumer service has not seen."""
    servicer = behind(log, life, monkeypatch)
    offsets = [pb.QueueOffset(topic="t", queue_id=0, queue_offset=5)]
    servicer.CommitOffsets(pb.CommitOffsetsRequest(consumer_group="g", offsets=offsets), CONTEXT)
    assert life.pop(pop_of("g", "t", max_messages=10, client_id="c")) == []
    assert [offset for _, offset in life.pulls.offsets("g", "t")] == [5]


def test_a_service_that_does_not_come_near_its_log_moves_no_group(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer = behind(log, life, monkeypatch)
    monkeypatch.setattr(servicer._progress, "wait_past", lambda *_: False)
    life.pulls.commit("g", [("t", 0, 0)])
    with pytest.raises(ServiceUnavailableError, match="where the queues end is not known"):
        servicer.ResetOffsets(pb.ResetOffsetsRequest(consumer_group="g", topic="t", latest=True), CONTEXT)
    offsets = [pb.QueueOffset(topic="t", queue_id=0, queue_offset=5)]
    with pytest.raises(ServiceUnavailableError):
        servicer.CommitOffsets(pb.CommitOffsetsRequest(consumer_group="g", offsets=offsets), CONTEXT)
    assert [offset for _, offset in life.pulls.offsets("g", "t")] == [0]


def test_a_reset_to_a_time_took_a_position_of_a_queue_that_was_being_built(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    life.pulls.commit("g", [("t", 0, 1)])
    request = pb.ResetOffsetsRequest(consumer_group="g", topic="t")
    request.time.FromMilliseconds(1)
    assert life.groups.reset_targets(request) == {0: 0}
    log.is_building = True
    with pytest.raises(ServiceUnavailableError, match="being built"):
        life.groups.reset_targets(request)
    log.queues.clear()
    with pytest.raises(ServiceUnavailableError, match="being built"):
        life.groups.reset_targets(request)


@pytest.mark.parametrize(("to", "after"), [({"latest": True}, [2, 1, 0]), ({"earliest": True}, [0, 0, 0])])
def test_a_group_that_never_consumed_could_not_be_reset(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch, to: dict[str, bool], after: list[int]
) -> None:
    """RocketMQ moves every queue of the topic, those without messages too (AdminBrokerProcessor.resetOffsetInner)."""
    progress = FollowerProgress()
    monkeypatch.setattr(progress, "wait_past", lambda *_: True)
    servicer = ConsumerServicer(
        progress, LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
    )
    servicer.open(LifeParts.of(life.life))
    log.configure("t", queue_count=3)
    for queue_id in (0, 0, 1):
        log.send("t", queue_id=queue_id)
    dry = servicer.ResetOffsets(pb.ResetOffsetsRequest(consumer_group="new", topic="t", dry_run=True, **to), CONTEXT)
    assert "new" not in life.states.groups
    done = servicer.ResetOffsets(pb.ResetOffsetsRequest(consumer_group="new", topic="t", **to), CONTEXT)
    assert dry == done
    assert [(each.HasField("before"), each.after) for each in done.resets] == [(False, offset) for offset in after]
    assert len(life.pop(pop_of("new", "t", max_messages=10))) == 3 - sum(after)
    kept = log.state().states.groups["new"]
    assert [queue.next_offset for _, queue in kept.queues()] == [2, 1, 0]


def test_a_topic_without_messages_could_not_be_reset(log: MemoryLog, life: LogLife) -> None:
    log.configure("t", queue_count=2)
    request = pb.ResetOffsetsRequest(consumer_group="new", topic="t")
    request.time.FromMilliseconds(1)
    assert life.groups.reset_targets(request) == {0: 0, 1: 0}
    assert [one.after for one in life.pulls.reset("new", "t", {0: 0, 1: 0}, dry_run=False)] == [0, 0]
    with pytest.raises(TopicNotFoundError):
        life.groups.reset_targets(pb.ResetOffsetsRequest(consumer_group="new", topic="no-such", latest=True))
    with pytest.raises(InvalidArgumentError):
        life.groups.reset_targets(pb.ResetOffsetsRequest(consumer_group="no group", topic="t", latest=True))


def test_a_beginning_is_taken_whole_and_not_together_with_positions(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer = behind(log, life, monkeypatch)
    request = pb.CommitOffsetsRequest(
        consumer_group="g", beginning=pb.Beginning(topic="t", queue_offsets=[5, -1, 0]), offsets=[pb.QueueOffset()]
    )
    with pytest.raises(InvalidArgumentError, match="set one of them"):
        servicer.CommitOffsets(request, CONTEXT)
    del request.offsets[:]
    servicer.CommitOffsets(request, CONTEXT)
    assert life.pop(pop_of("g", "t", max_messages=10, client_id="c")) == []
    assert {ref.queue_id: offset for ref, offset in life.pulls.offsets("g", "t")} == {0: 5, 2: 0}


def test_a_group_of_grpc_clients_had_no_retry_topic_until_a_message_came_back(log: MemoryLog, life: LogLife) -> None:
    """mqadmin and the dashboard ask for its route: "CODE: 17 No topic route info". RocketMQ makes it with the first member."""
    servicer = ConsumerServicer(
        FollowerProgress(), LiveConsumers(time.monotonic), QueueLocks(time.monotonic), Arrivals(), lambda: False
    )
    servicer.open(LifeParts.of(life.life))

    def beat(*groups: str) -> None:
        clients = [pb.Client(client_id="c", consumer_group=group) for group in groups]
        servicer.KeepClients(pb.KeepClientsRequest(clients=clients), CONTEXT)

    beat("invented")  # names in heartbeats are not limited, groups are
    servicer.UpdateGroup(pb.UpdateGroupRequest(settings=pb.GroupSettings(consumer_group="by-command")), CONTEXT)
    assert not log.topics
    servicer.UpdateGroup(
        pb.UpdateGroupRequest(settings=pb.GroupSettings(consumer_group="polls"), if_unset=True), CONTEXT
    )
    assert log.topics.keys() == {"%RETRY%polls"}
    beat("by-command", "polls", "invented")
    assert log.topics.keys() == {"%RETRY%polls", "%RETRY%by-command"}


@pytest.mark.parametrize("leadership", [None, 0])
def test_a_replica_that_does_not_lead_makes_no_topic(
    log: MemoryLog, begin: Callable[..., LogLife], leadership: int | None
) -> None:
    begin().pulls.commit("g", [("t", 0, 0)])
    life = begin(leadership=leadership)
    life.groups.make_retry_topics(["g"], wait=True)
    assert list(log.topics) == ([] if leadership is None else ["%RETRY%g"])
