"""Lite topics: subscriptions, order, exclusive owners, offsets, clients that end, expiry, lists."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer_svc.delivering.acks import OK, TOO_LATE
from consumer_svc.state.group_states import GroupSettings
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.convert import millis_to_timestamp
from store.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    LiteSubscriptionQuotaExceededError,
    ServiceUnavailableError,
    StoreError,
    TopicNotFoundError,
)
from store.format.delivery.consumer_files import LiteConfig
from store.format.topic import lite_queue_name
from tests.consumer_svc.asking import state_of
from tests.consumer_svc.lite import ADD, ALL, NONE, PARENT, REMOVE, bind, consume, get, poll, send, sync
from tests.consumer_svc.memory_log import START_MILLIS, LogLife, ManualClock, MemoryLog, contents
from tests.support.waiting import WAIT_SECONDS_MAX

MINUTE = 60_000


def listed(life: LogLife, **fields: Any) -> pb.ListLiteTopicsResponse:
    """A list of lite topics."""
    return life.lite.page(pb.ListLiteTopicsRequest(**fields))


def positions(life: LogLife, name: str = "g") -> dict[str, int]:
    """Positions of a group by lite topic."""
    group = life.states.groups[name]
    return {queue.split("$")[2]: state.consumer_offset for queue, state in group.light_queues()}


# -- polls


def test_a_client_gets_the_messages_of_the_lite_topics_that_it_subscribes_to(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    assert sync(life, "c", ADD, "a", "b") == 2
    for lite_topic in ("a", "b", "z"):
        send(log, lite_topic, f"{lite_topic}0")
    assert get(life) == ["a0", "b0"]
    assert get(life, "stranger") == []


def test_of_a_lite_topic_with_messages_in_flight_nothing_more_is_handed_out(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(3):
        send(log, "a", f"a{number}")
    first = life.pop(poll(max_messages=2))
    assert [one.message.body for one in first] == [b"a0", b"a1"]
    send(log, "a", "a3")
    assert get(life) == []
    life.acks.ack("g", [first[0].receipt_handle])
    assert get(life) == []
    life.acks.ack("g", [first[1].receipt_handle])
    assert get(life) == ["a2", "a3"]


def test_messages_of_many_lite_topics_come_in_one_answer_up_to_its_size(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, *(f"l{number}" for number in range(40)))
    for number in range(40):
        send(log, f"l{number}", f"m{number}")
    assert get(life) == [f"m{number}" for number in range(32)]
    assert get(life) == [f"m{number}" for number in range(32, 40)]


def test_a_delivery_shows_queue_0_and_the_position_in_the_lite_topic(log: MemoryLog, life: LogLife) -> None:
    """As RocketMQ 5.5.0 does."""
    bind(log, life)
    sync(life, "c", ADD, "a")
    log.send(PARENT, b"other", 3)
    log.send(PARENT, b"a0", 3, lite_topic="a")
    (one,) = life.pop(poll())
    assert (one.message.topic, one.message.queue_id, one.message.queue_offset) == (PARENT, 0, 0)


def test_what_is_not_consumed_in_time_comes_again_before_what_follows(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(2):
        send(log, "a", f"a{number}")
    assert get(life, max_messages=1) == ["a0"]
    clock.now += 11_000
    life.expire()
    again = life.pop(poll())
    assert [(one.message.body, one.delivery_attempt) for one in again] == [(b"a0", 2), (b"a1", 1)]
    assert not any(topic.startswith("%RETRY%") for topic, _ in log.queues)


def test_a_message_that_had_all_its_attempts_becomes_a_dead_letter_and_the_next_ones_go_on(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "bad")
    for _ in range(3):
        assert get(life) == ["bad"]
        clock.now += 11_000
        life.expire()
    send(log, "a", "good")
    assert consume(life) == ["good"]
    assert [message.body for message in log.messages("%DLQ%g")] == [b"bad"]


def test_a_message_that_is_given_up_becomes_a_dead_letter_and_the_next_ones_come(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(2):
        send(log, "a", f"a{number}")
    (one,) = life.pop(poll(max_messages=1))
    life.acks.give_up("g", one.receipt_handle)
    assert consume(life) == ["a1"]
    assert [message.body for message in log.messages("%DLQ%g")] == [b"a0"]


def test_the_same_attempt_gets_a_lost_answer_again_also_after_a_restart(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a", "b")
    send(log, "a", "a0")
    send(log, "b", "b0")
    assert get(life, attempt_id="one") == ["a0", "b0"]
    assert get(life, attempt_id="one") == ["a0", "b0"]
    assert get(life, attempt_id="two") == []
    assert sorted(get(begin(), attempt_id="one")) == ["a0", "b0"]


def test_a_suspended_batch_comes_again_as_a_whole_and_the_attempt_does_not_count(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    """ChangeInvisibleDuration with suspend, as RocketMQ 5.5.0 does it."""
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(3):
        send(log, "a", f"a{number}")
    first = life.pop(poll())
    life.acks.change_invisible("g", first[1].receipt_handle, 30_000, suspends=True)
    clock.now += 20_000
    life.expire()
    assert get(life) == []
    clock.now += 10_000
    life.expire()
    again = life.pop(poll())
    assert [(one.message.body, one.delivery_attempt) for one in again] == [(b"a0", 1), (b"a1", 1), (b"a2", 1)]


def test_all_of_a_lite_topic_is_in_order_whatever_message_groups_its_messages_name(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    """What lies behind a message that is not consumed was not attempted, as its program got them one by one."""
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(2):
        log.send(PARENT, f"a{number}".encode(), 0, message_group=f"group {number}", lite_topic="a")
    first, _ = life.pop(poll(invisible_millis=20_000))
    life.acks.change_invisible("g", first.receipt_handle, 1_000)
    for seconds in (5, 20):
        clock.now += seconds * 1_000
        life.expire()
    assert [(one.message.body, one.delivery_attempt) for one in life.pop(poll())] == [(b"a0", 2), (b"a1", 1)]


def test_a_lite_topic_whose_queue_is_not_built_yet_is_an_error_and_comes_later(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "a0")
    life = begin()  # which has no units in memory
    life.look_through()
    log.is_building = True
    with pytest.raises(ServiceUnavailableError):
        get(life)
    log.is_building = False
    assert get(life) == ["a0"]


def test_a_group_that_is_not_bound_to_the_parent_is_refused(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    life.groups.update(GroupSettings("plain"))
    for name, topic in (("plain", PARENT), ("g", "other")):
        with pytest.raises(InvalidArgumentError):
            life.pop(pb.PopMessagesRequest(consumer_group=name, topic=topic, client_id="c", is_lite=True))
        with pytest.raises(InvalidArgumentError):
            life.lite.sync(pb.SyncLiteSubscriptionRequest(consumer_group=name, topic=topic, client_id="c", action=ADD))
    with pytest.raises(InvalidArgumentError) as refused:
        life.pop(pb.PopMessagesRequest(consumer_group="g", topic=PARENT, client_id="c"))
    assert refused.value.metadata["field"] == "is_lite"
    with pytest.raises(GroupNotFoundError):
        sync(life, "c", ADD, "a", name="unknown")
    assert life.pop(poll(name="unknown")) == []


# -- subscriptions


@pytest.mark.parametrize("lite_topic", ["", "a" * 65, "a b", "a$b", "ä", "%LMQ%"])
def test_an_illegal_name_of_a_lite_topic_is_refused(log: MemoryLog, life: LogLife, lite_topic: str) -> None:
    bind(log, life)
    with pytest.raises(InvalidArgumentError):
        sync(life, "c", ADD, "good", lite_topic)
    assert "c" not in life.states.groups["g"].lite.clients


def test_a_complete_subscription_replaces_the_one_before(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a", "b")
    assert sync(life, "c", ALL, "b", "x") == 2
    for lite_topic in ("a", "b", "x"):
        send(log, lite_topic, lite_topic)
    assert consume(life) == ["b", "x"]
    assert sync(life, "c", REMOVE, "b") == 1
    assert sync(life, "c", NONE) == 0
    assert life.states.groups["g"].lite.clients == {}


def test_a_late_complete_subscription_has_no_effect(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    assert sync(life, "c", ALL, "a", "b", version=7) == 2
    assert sync(life, "c", ALL, "a", version=6) == 2
    assert sync(life, "c", ALL, "a", version=8) == 1


def test_a_late_complete_subscription_undid_a_newer_partial_one(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    assert sync(life, "c", ALL, "a", version=7) == 1
    assert sync(life, "c", ADD, "b", version=9) == 2
    assert sync(life, "c", ALL, "a", version=8) == 2
    assert sync(life, "c", REMOVE, "b", version=11) == 1
    assert sync(life, "c", ALL, "a", "b", version=10) == 1
    assert sync(life, "c", ADD, "b", version=1) == 2, "only what says all can be late"


@pytest.mark.parametrize("action", [ADD, REMOVE])
def test_a_partial_subscription_cost_as_much_as_all_that_its_client_subscribes_to(
    log: MemoryLog, life: LogLife, action: "pb.LiteAction"
) -> None:
    bind(log, life, client_quota=-1)
    sync(life, "c", ALL, *(f"l{number}" for number in range(500)))
    client = life.states.groups["g"].lite.clients["c"]

    class Unlisted(set[str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("it looks at each lite topic of the client")

    client.queues = Unlisted(client.queues)
    assert sync(life, "c", action, "l1") == (500 if action == ADD else 499)


def test_versions_of_the_clients_of_a_deleted_group_are_forgotten(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ALL, "a", version=7)
    life.groups.delete("g")
    bind(log, life)
    assert sync(life, "c", ALL, "b", version=1) == 1
    assert list(life.states.groups["g"].lite.queues()) == [lite_queue_name(PARENT, "b")]


def test_a_subscription_that_changes_nothing_is_not_written(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ALL, "a", "b")
    before = len(log.state_bodies)
    for _ in range(3):
        assert sync(life, "c", ALL, "b", "a") == 2
    assert len(log.state_bodies) == before


def test_subscriptions_and_what_is_in_flight_outlive_a_restart(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    """RocketMQ keeps both in memory only."""
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a", "b")
    for number in range(2):
        send(log, "a", f"a{number}")
    send(log, "b", "b0")
    held = life.pop(poll(max_messages=1))
    life = begin()
    life.look_through()
    assert get(life) == ["b0"]  # of `a` one is in flight
    assert life.acks.ack("g", [held[0].receipt_handle]) == [OK]
    assert get(life) == ["a1"]


def test_a_message_that_comes_while_the_service_is_away_is_found_after_its_start(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, *(f"l{number}" for number in range(100)))
    log.recent, log.on_light = None, lambda queues: None
    send(log, "l7", "m")
    life = begin()
    life.look_through()
    assert get(life) == ["m"]


def test_a_full_state_has_subscriptions_and_positions(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a", "b")
    sync(life, "d", ADD, "b")
    for lite_topic in ("a", "b"):
        send(log, lite_topic, lite_topic)
    assert sorted(consume(life)) == ["a", "b"]
    life.life.write_full().result(WAIT_SECONDS_MAX)
    assert contents(begin().states) == contents(life.states)
    assert life.states.groups["g"].light == {lite_queue_name(PARENT, "a"): 1, lite_queue_name(PARENT, "b"): 1}


def test_clients_of_a_shared_lite_topic_share_it_one_at_a_time(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    for client_id in ("c", "d"):
        sync(life, client_id, ADD, "a")
    for number in range(4):
        send(log, "a", f"a{number}")
    assert get(life, "c", max_messages=1) == ["a0"]
    assert get(life, "d") == []


def test_a_wildcard_group_gets_all_lite_topics_those_that_come_included(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_wildcard=True)
    send(log, "before", "b0")
    with pytest.raises(InvalidArgumentError):
        sync(life, "c", ADD, "a")
    assert sync(life, "c", ALL) == 0
    life.look_through()
    assert consume(life) == ["b0"]
    send(log, "new", "n0")
    send(log, "new", "n1")
    assert consume(life) == ["n0", "n1"]
    assert get(life, "stranger") == []
    sync(life, "c", NONE)
    send(log, "new", "n2")
    assert get(life) == []


def test_a_client_with_more_lite_topics_than_its_quota_is_refused_with_nothing_changed(
    log: MemoryLog, life: LogLife
) -> None:
    bind(log, life, client_quota=2)
    sync(life, "c", ADD, "a", "b")
    for action, named in ((ADD, ("x",)), (ALL, ("a", "b", "x"))):
        with pytest.raises(LiteSubscriptionQuotaExceededError):
            sync(life, "c", action, *named)
    assert sorted(queue.split("$")[2] for queue in life.states.groups["g"].lite.queues()) == ["a", "b"]
    assert sync(life, "c", ALL, "b", "x") == 2  # no more than before


def test_without_a_quota_of_the_group_a_client_has_2000_lite_topics(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    names = [f"l{number}" for number in range(2_001)]
    with pytest.raises(LiteSubscriptionQuotaExceededError):
        sync(life, "c", ADD, *names)
    assert sync(life, "c", ADD, *names[:2_000]) == 2_000


def test_the_shard_has_a_limit_for_the_subscriptions_of_all_clients(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(lite_subscription_count_max=3)
    bind(log, life, client_quota=-1)
    sync(life, "c", ADD, "a", "b")
    with pytest.raises(LiteSubscriptionQuotaExceededError):
        sync(life, "d", ADD, "a", "b")
    assert sync(life, "d", ADD, "a") == 1


def test_clients_without_any_lite_topic_count_for_the_limit_of_the_shard(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(lite_subscription_count_max=2)
    bind(log, life)
    sync(life, "c", ALL)
    sync(life, "d", ALL)
    with pytest.raises(LiteSubscriptionQuotaExceededError):
        sync(life, "e", ALL)
    sync(life, "d", ADD, "a")  # it counts as one already
    assert set(life.states.groups["g"].lite.clients) == {"c", "d"}


def test_a_subscription_beyond_the_quota_is_refused_before_anything_is_read_for_it(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind(log, life, client_quota=2)
    asked: list[str] = []
    monkeypatch.setattr(life.life.reader, "range", lambda topic, queue_id: asked.append(topic))
    with pytest.raises(LiteSubscriptionQuotaExceededError):
        sync(life, "c", ADD, "a", "b", "d", begins=pb.LiteOffset(latest=True))
    assert asked == []


def test_a_refused_subscription_does_not_make_a_later_one_late(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, client_quota=1)
    with pytest.raises(LiteSubscriptionQuotaExceededError):
        sync(life, "c", ALL, "a", "b", version=9)
    assert sync(life, "c", ALL, "a", version=8) == 1
    assert len(life.life.news._versions) == 1


def test_a_batch_of_messages_wakes_each_client_once_whatever_the_number_of_lite_topics(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind(log, life, is_wildcard=True)
    bind(log, life, "h")
    for client_id in ("c", "d"):
        sync(life, client_id, ALL)
    sync(life, "e", ALL, "a", "b", name="h")
    woken: list[set[tuple[str, str, str]]] = []
    monkeypatch.setattr(life.arrivals, "note_lite", woken.append)
    with life.life.lock:
        life.lite.hear([lite_queue_name(PARENT, each) for each in ("a", "b", "z")], 0)
    assert woken == [{("g", PARENT, "c"), ("g", PARENT, "d"), ("h", PARENT, "e")}]


def test_wildcard_clients_are_known_without_a_look_at_all_clients(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life, is_wildcard=True)
    for client_id in ("c", "d", "e"):
        sync(life, client_id, ALL)
    sync(life, "d", NONE)
    life.groups.update(GroupSettings("g", lite=LiteConfig(PARENT)))
    sync(life, "e", ALL, "a")
    for each in (life, begin()):
        lite = each.states.groups["g"].lite
        assert set(lite.wildcards()) == {name for name, client in lite.clients.items() if client.is_wildcard} == {"c"}


def test_the_ends_of_very_many_lite_topics_are_compared_with_pauses_for_deliveries(
    log: MemoryLog, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind(log, life)
    names = [f"a{number}" for number in range(300)]
    for name in names:
        send(log, name, name)
    sizes: list[int] = []
    see_ends = life.life.news.see_ends
    monkeypatch.setattr(
        life.life.news, "see_ends", lambda topic, ends: (sizes.append(len(ends)), see_ends(topic, ends))
    )
    monkeypatch.setattr("consumer_svc.delivering.lite_topics.LOCKED_COUNT", 100)
    sync(life, "c", ALL, *names)
    life.look_through()
    assert sizes == [100, 100, 100]
    assert len(consume(life)) == 300


def test_very_many_lite_topics_are_looked_through_and_not_asked_for_one_by_one(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, client_quota=-1)
    send(log, "l500", "m")
    log.recent = None
    assert sync(life, "c", ADD, *(f"l{number}" for number in range(12_000))) == 12_000
    assert get(life) == []
    life.look_through()
    assert get(life) == ["m"]


# -- exclusive groups


def test_the_newest_subscription_owns_a_lite_topic_and_the_former_owner_is_told(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_exclusive=True)
    watcher = life.arrivals.watch()
    watcher.take(0)
    sync(life, "c", ADD, "a", "b")
    send(log, "a", "a0")
    sync(life, "d", ADD, "a")
    assert watcher.take(0).lost == {("g", PARENT, "c", "a")}
    assert get(life, "c") == []
    assert get(life, "d") == ["a0"]


def test_what_the_former_owner_has_in_flight_stays_its_own(log: MemoryLog, clock: ManualClock, life: LogLife) -> None:
    bind(log, life, is_exclusive=True)
    sync(life, "c", ADD, "a")
    for number in range(2):
        send(log, "a", f"a{number}")
    held = life.pop(poll("c", max_messages=1))
    sync(life, "d", ADD, "a")
    assert get(life, "d") == []
    assert life.acks.ack("g", [held[0].receipt_handle]) == [OK]
    assert get(life, "d") == ["a1"]


def test_a_complete_subscription_takes_nothing_from_another_owner_and_is_told_so(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_exclusive=True)
    sync(life, "c", ADD, "a")
    sync(life, "d", ADD, "a")
    request = pb.SyncLiteSubscriptionRequest(
        consumer_group="g", topic=PARENT, client_id="c", action=ALL, lite_topics=("a", "b")
    )
    answer = life.lite.sync(request)
    assert (answer.lite_topic_count, list(answer.lost_lite_topics)) == (1, ["a"])
    sync(life, "d", NONE)
    assert sync(life, "c", ALL, "a", "b") == 2


def test_a_takeover_begins_at_the_first_message_where_the_group_says_so(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_exclusive=True, reset_offset_exclusive=True)
    sync(life, "c", ADD, "a")
    for number in range(2):
        send(log, "a", f"a{number}")
    assert consume(life, "c") == ["a0", "a1"]
    sync(life, "d", ADD, "a")
    assert consume(life, "d") == ["a0", "a1"]


def test_owners_are_the_same_after_a_restart(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    life = begin()
    bind(log, life, is_exclusive=True)
    sync(life, "c", ADD, "a")
    sync(life, "d", ADD, "a")
    life = begin()
    assert sync(life, "c", ALL, "a") == 0
    assert sync(life, "d", ALL, "a") == 1


# -- where a subscription begins


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        (pb.LiteOffset(earliest=True), "01234"),
        (pb.LiteOffset(latest=True), ""),
        (pb.LiteOffset(queue_offset=3), "34"),
        (pb.LiteOffset(queue_offset=99), ""),
        (pb.LiteOffset(last_count=2), "34"),
        (pb.LiteOffset(last_count=99), "01234"),
        (pb.LiteOffset(time=millis_to_timestamp(START_MILLIS + 2_000)), "234"),
        (pb.LiteOffset(time=millis_to_timestamp(START_MILLIS + 9_000)), ""),
        (None, "01234"),
    ],
)
def test_a_new_subscription_begins_where_it_says(
    log: MemoryLog, clock: ManualClock, life: LogLife, begins: pb.LiteOffset | None, expected: str
) -> None:
    bind(log, life)
    for number in range(5):
        send(log, "a", str(number))
        clock.now += 1_000
    sync(life, "c", ADD, "a", begins=begins)
    assert "".join(consume(life)) == expected
    send(log, "a", "5")
    assert consume(life) == ["5"]


def test_so_many_back_counts_from_where_the_group_is_so_that_nothing_is_skipped(log: MemoryLog, life: LogLife) -> None:
    """RocketMQ counts from there, too."""
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(6):
        send(log, "a", str(number))
    held = life.pop(poll(max_messages=3))
    life.acks.ack("g", [one.receipt_handle for one in held])
    sync(life, "d", ADD, "a", begins=pb.LiteOffset(last_count=1))
    assert "".join(consume(life, "d")) == "2345"


def test_a_subscription_that_there_was_begins_nowhere_anew(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    send(log, "a", "a0")
    sync(life, "c", ADD, "a", begins=pb.LiteOffset(earliest=True))
    assert consume(life) == ["a0"]
    sync(life, "c", ADD, "a", begins=pb.LiteOffset(earliest=True))
    assert consume(life) == []


def test_where_new_groups_begin_at_the_end_a_lite_topic_does_so_when_it_is_subscribed_to(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    bind(log, life)
    send(log, "a", "old")
    sync(life, "c", ADD, "a", "b")
    send(log, "a", "new")
    send(log, "b", "first")
    assert sorted(consume(life)) == ["first", "new"]


def test_a_second_subscriber_does_not_move_a_group_past_messages_that_it_did_not_get(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "a0")
    sync(life, "d", ADD, "a")
    assert consume(life) == ["a0"]


def test_messages_that_come_while_a_client_is_away_are_not_skipped_where_groups_begin_at_the_end(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    bind(log, life)
    sync(life, "c", ADD, "a")
    life.lite.end_client("g", "c")
    send(log, "a", "a0")
    again = begin(begins_at_end=True)
    sync(again, "c", ALL, "a")
    assert consume(again) == ["a0"]


def test_messages_behind_an_expired_lite_topic_are_not_skipped_where_groups_begin_at_the_end(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True)
    bind(log, life, minutes=15)
    sync(life, "c", ADD, "a")
    send(log, "a", "a0")
    assert consume(life) == ["a0"]
    clock.now += 16 * MINUTE
    assert life.lite.expire(0) == 1
    send(log, "a", "a1")
    sync(life, "c", ALL, "a")
    assert consume(life) == ["a1"]


def test_a_group_that_begins_at_the_end_keeps_a_bounded_number_of_empty_beginnings(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin(begins_at_end=True, lite_subscription_count_max=3)
    bind(log, life)
    for number in range(10):
        sync(life, "c", ALL, f"forged{number}")
    assert len(positions(life)) == 3


def test_a_lite_topic_begins_again_when_its_last_client_unsubscribes_where_the_group_says_so(
    log: MemoryLog, life: LogLife
) -> None:
    bind(log, life, reset_offset_unsubscribe=True)
    send(log, "a", "a0")
    for client_id in ("c", "d"):
        sync(life, client_id, ADD, "a")
    assert consume(life) == ["a0"]
    sync(life, "c", REMOVE, "a")
    sync(life, "c", ADD, "a")
    assert consume(life) == []
    for client_id in ("c", "d"):
        sync(life, client_id, REMOVE, "a")
    sync(life, "c", ADD, "a")
    assert consume(life) == ["a0"]


# -- clients that end


def test_a_client_that_ends_subscribes_to_nothing_and_frees_what_it_owns(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_exclusive=True)
    sync(life, "c", ADD, "a")
    life.lite.end_client("g", "c")
    life.lite.end_client("g", "c")
    assert sync(life, "d", ALL, "a") == 1


def test_a_client_that_is_silent_for_3_minutes_has_ended_and_one_that_polls_has_not(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life)
    for client_id in ("silent", "polls"):
        sync(life, client_id, ADD, "a")
    for _ in range(4):
        clock.now += MINUTE
        get(life, "polls")
        life.lite.end_silent()
    assert list(life.states.groups["g"].lite.clients) == ["polls"]


def test_clients_have_time_to_be_heard_of_after_a_start(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a")
    clock.now += 60 * MINUTE
    life = begin()
    life.lite.end_silent()
    assert "c" in life.states.groups["g"].lite.clients
    clock.now += 4 * MINUTE
    life.lite.end_silent()
    assert "c" not in life.states.groups["g"].lite.clients


# -- expiry


def test_a_lite_topic_without_a_new_message_is_forgotten_and_begins_behind_what_it_had(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life, minutes=20)
    sync(life, "c", ADD, "old", "young")
    for lite_topic in ("old", "young"):
        send(log, lite_topic, "m0")
    assert consume(life) == ["m0", "m0"]
    clock.now += 19 * MINUTE
    send(log, "young", "m1")
    assert life.lite.expire(0) == 0
    clock.now += 2 * MINUTE
    assert life.lite.expire(0) == 1
    assert positions(life) == {"young": 1}
    assert consume(life) == ["m1"]
    before, life = contents(life.states), begin()
    assert contents(life.states) == before
    sync(life, "c", ADD, "old")
    assert consume(life) == []  # what it had is not delivered again
    send(log, "old", "m2")
    assert consume(life) == ["m2"]


def test_what_a_group_had_not_consumed_expires_with_its_lite_topic(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    """As in RocketMQ, which deletes the queue, lag or not."""
    bind(log, life, minutes=20)
    sync(life, "c", ADD, "a")
    send(log, "a", "m0")
    clock.now += 21 * MINUTE
    assert life.lite.expire(0) == 1
    sync(life, "c", ADD, "a")
    send(log, "a", "m1")
    assert consume(life) == ["m1"]


def test_nothing_expires_in_the_first_minutes_of_a_life_or_in_less_than_15(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life, minutes=1)
    sync(life, "c", ADD, "a")
    send(log, "a", "m0")
    clock.now += 14 * MINUTE
    assert life.lite.expire(0) == 0
    clock.now += 60 * MINUTE
    life = begin()
    assert life.lite.expire(0) == 0
    clock.now += 16 * MINUTE
    assert life.lite.expire(0) == 1


def test_a_lite_topic_that_nobody_has_sent_to_and_one_in_flight_do_not_expire(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life, minutes=20)
    sync(life, "c", ADD, "a", "nothing")
    send(log, "a", "m0")
    assert get(life, invisible_millis=60 * MINUTE) == ["m0"]
    clock.now += 30 * MINUTE
    assert life.lite.expire(0) == 0


def test_what_is_handed_out_while_lite_topics_expire_is_kept(log: MemoryLog, clock: ManualClock, life: LogLife) -> None:
    bind(log, life, minutes=20)
    sync(life, "c", ADD, "a")
    send(log, "a", "m0")
    clock.now += 21 * MINUTE
    reader: Any = life.life.reader
    got: list[pb.Delivery] = []
    read = reader.range

    def range_of(topic: str, queue_id: int) -> Any:
        if not got:
            got.extend(life.pop(poll()))
        return read(topic, queue_id)

    reader.range = range_of
    assert life.lite.expire(0) == 0
    assert life.acks.ack("g", [got[0].receipt_handle]) == [OK]


def test_lite_topics_that_cannot_expire_do_not_hide_those_that_can(
    log: MemoryLog, clock: ManualClock, life: LogLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer_svc.delivering.lite_topics.EXPIRED_COUNT_MAX", 2)
    monkeypatch.setattr("consumer_svc.delivering.lite_topics.LOOKED_COUNT_MAX", 3)
    bind(log, life, minutes=15)
    sync(life, "c", ADD, *(f"empty{number}" for number in range(5)))
    bind(log, life, "h", minutes=15)
    sync(life, "d", ADD, "a", name="h")
    send(log, "a", "a0")
    clock.now += 16 * MINUTE
    count, looks = life.lite.expire(0), 1
    while life.lite.expires_more:
        count += life.lite.expire(0)
        looks += 1
        assert looks < 20
    assert count == 1
    assert life.states.groups["h"].lite.clients["d"].queues == set()


def test_a_lite_topic_that_a_client_names_again_after_it_expired_is_not_forgotten_each_minute(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life, minutes=15)
    sync(life, "c", ALL, "a")
    send(log, "a", "a0")
    clock.now += 16 * MINUTE
    assert life.lite.expire(0) == 1
    sync(life, "c", ALL, "a")
    clock.now += MINUTE
    assert life.lite.expire(0) == 0
    send(log, "a", "a1")
    assert consume(life) == ["a1"]
    clock.now += 16 * MINUTE
    while life.lite.expires_more:
        life.lite.expire(0)
    assert life.lite.expire(0) == 1


def test_times_of_lite_topics_are_kept_for_as_long_as_they_say_something(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    bind(log, life, minutes=20)
    for lite_topic in ("a", "b"):
        send(log, lite_topic, "m")  # nobody subscribes
    clock.now += 15 * MINUTE
    send(log, "b", "m")
    clock.now += 6 * MINUTE
    life.lite.expire(0)
    assert list(life.lite._newest) == [lite_queue_name(PARENT, "b")]


def test_where_a_forgotten_lite_topic_begins_is_kept_until_retention_has_passed_it(
    log: MemoryLog, clock: ManualClock, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life, minutes=20)
    sync(life, "c", ADD, "a")
    send(log, "a", "m0")
    clock.now += 21 * MINUTE
    assert life.lite.expire(0) == 1
    life.life.write_full().result(WAIT_SECONDS_MAX)
    life = begin()
    assert life.states.begin_offset(lite_queue_name(PARENT, "a")) == 1
    life.lite.expire(log.end)
    assert life.states.lite_floors == {}


# -- lists


def test_a_list_has_the_lite_topics_of_a_parent_by_name_in_pages(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    for lite_topic in ("b", "a", "B2"):
        send(log, lite_topic, "m")
    sync(life, "c", ADD, "b", "only-subscribed")
    assert consume(life) == ["m"]
    send(log, "b", "m1")
    page = listed(life, topic=PARENT, page_size=2)
    assert ([row.lite_topic for row in page.lite_topics], page.has_more) == (["B2", "a"], True)
    rows = listed(life, topic=PARENT, after="a").lite_topics
    assert [(row.lite_topic, row.min_offset, row.max_offset) for row in rows] == [
        ("b", 0, 2),
        ("only-subscribed", 0, 0),
    ]
    (part,) = rows[0].groups
    assert (part.consumer_group, part.consumer_offset, part.lag_count, list(part.client_ids)) == ("g", 1, 1, ["c"])
    assert rows[0].HasField("last_store_time")
    assert not rows[1].HasField("last_store_time")
    assert [row.lite_topic for row in listed(life, topic=PARENT, lite_topic_contains="b").lite_topics] == [
        "B2",
        "b",
        "only-subscribed",
    ]


def test_a_list_of_a_group_or_client_has_only_its_lite_topics(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    for lite_topic in ("a", "b", "x"):
        send(log, lite_topic, "m")
    sync(life, "c", ADD, "a")
    sync(life, "d", ADD, "b")
    assert [row.lite_topic for row in listed(life, consumer_group="g").lite_topics] == ["a", "b"]
    assert [row.lite_topic for row in listed(life, consumer_group="g", client_id="d").lite_topics] == ["b"]
    assert [row.lite_topic for row in listed(life, topic=PARENT, lite_topic="x").lite_topics] == ["x"]
    with pytest.raises(GroupNotFoundError):
        listed(life, consumer_group="unknown")
    for wrong in ({"topic": PARENT, "lite_topic": "a b"}, {"topic": PARENT, "page_size": -1}, {}):
        with pytest.raises(StoreError):
            listed(life, **wrong)


def test_a_group_is_described_by_its_parent_and_not_by_each_lite_topic(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, client_quota=-1)
    names = [f"l{number}" for number in range(100)]
    sync(life, "c", ADD, *names)
    for name in names:
        send(log, name, "m0")
    assert len(consume(life)) == 100
    for name in names[:10]:
        send(log, name, "m1")
    assert len(get(life, max_messages=4)) == 4
    described = life.groups.describe("g")
    assert list(described.queues) == []
    (row,) = described.lite_topics
    assert (row.topic, row.lite_topic_count, row.lag_count, row.in_flight_count) == (PARENT, 100, 10, 4)
    assert [(each.client_id, each.lite_topic_count) for each in row.subscribers] == [("c", 100)]
    assert life.pulls.offsets("g", "") == []
    assert [at for _, at in life.pulls.offsets("g", lite_queue_name(PARENT, "l50"))] == [1]


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("is_wildcard", [False, True])
def test_the_lag_counts_lite_topics_that_were_never_read(
    log: MemoryLog, life: LogLife, count: int, is_wildcard: bool
) -> None:
    bind(log, life, is_wildcard=is_wildcard)
    names = [f"l{number}" for number in range(count)]
    sync(life, "c", ALL, *() if is_wildcard else names)
    for name in (*names, *names, "other"):
        send(log, name, "m")
    assert len(consume(life, max_messages=1)[:1]) == 1
    for name in names:
        send(log, name, "m")
    sync(life, "c", ALL, *() if is_wildcard else (*names, "new"))
    send(log, "new", "m")
    (row,) = life.groups.describe("g").lite_topics
    assert row.lag_count == count + 1


def test_groups_of_a_parent_topic_are_listed_with_it(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    life.groups.update(GroupSettings("other"))
    assert [each.consumer_group for each in life.groups.page(PARENT)[0]] == ["g"]


def test_a_lite_topic_is_looked_at_again_after_an_error_that_nobody_thought_of(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_wildcard=True)
    sync(life, "c", ALL)
    send(log, "a", "a0")

    def fail() -> None:
        raise ValueError("unheard of")

    meanwhile(life, fail)
    with pytest.raises(ValueError, match="unheard of"):
        get(life)
    assert get(life) == ["a0"]


def test_a_message_is_tracked_in_its_lite_topic(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    message = log.send(PARENT, b"m", 3, lite_topic="a")
    (one,) = life.pop(poll())
    (track,) = life.track(message)
    assert (track.consumer_group, state_of(track), track.client_id) == ("g", "IN_FLIGHT", "c")
    life.acks.ack("g", [one.receipt_handle])
    (track,) = life.track(message)
    assert state_of(track) == "CONSUMED"


# -- settings of groups


def test_a_group_stays_bound_to_its_parent_topic(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    life = begin()
    bind(log, life, is_exclusive=True)
    life.groups.update(GroupSettings("g", delivery_attempts_max=5))  # says nothing of lite topics
    assert life.states.groups["g"].settings.lite == LiteConfig(PARENT, is_exclusive=True)
    with pytest.raises(InvalidArgumentError):
        life.groups.update(GroupSettings("g", lite=LiteConfig("other")))
    assert begin().states.groups["g"].settings.lite == LiteConfig(PARENT, is_exclusive=True)


def test_a_deleted_group_has_neither_positions_nor_subscriptions(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "m")
    assert consume(life) == ["m"]
    life.groups.delete("g")
    assert life.pop(poll()) == []
    assert life.states.bound == {}
    bind(log, life)
    assert begin().states.groups["g"].lite.clients == {}


# -- news


def test_arrivals_name_the_clients_that_subscribe(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    sync(life, "d", ADD, "b")
    watcher = life.arrivals.watch()
    watcher.take(0)
    send(log, "a", "m")
    assert watcher.take(0).lite_clients == {("g", PARENT, "c")}
    send(log, "nobody", "m")
    assert watcher.take(0).lite_clients == set()


def test_the_last_acknowledgement_tells_the_client_of_more_and_of_nothing_when_there_is_none(
    log: MemoryLog, life: LogLife
) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(3):
        send(log, "a", f"a{number}")
    watcher = life.arrivals.watch()
    for expected in ({("g", PARENT, "c")}, set()):
        first = life.pop(poll(max_messages=2))
        watcher.take(0)
        life.acks.ack("g", [one.receipt_handle for one in first])
        assert watcher.take(0).lite_clients == expected


def test_a_position_that_the_lite_topic_never_had_is_taken_back(log: MemoryLog, life: LogLife) -> None:
    """A power cut may take messages that were delivered; those that come then have their positions."""
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "m0")
    life.pulls.commit("g", [(lite_queue_name(PARENT, "a"), 0, 50)])
    assert consume(life) == []
    send(log, "a", "m1")
    assert consume(life) == ["m1"]


def test_a_message_that_waits_and_that_retention_removed_is_passed_and_wakes_no_poll_again(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    life = begin()
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "a0")
    (delivered,) = life.pop(poll())
    life.acks.give_back("g", delivered.receipt_handle)
    log.remove(lite_queue_name(PARENT, "a"), 0, 1)
    life = begin()
    life.look_through()
    assert consume(life) == []
    consume(life)
    watcher = life.arrivals.watch()
    watcher.take(0)
    assert consume(life) == []
    assert not watcher.take(0)
    assert positions(life) == {"a": 1}


def test_a_lite_topic_that_is_built_between_two_questions_is_not_taken_for_an_empty_one(
    log: MemoryLog, begin: Callable[..., LogLife], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = begin()
    bind(log, life)
    send(log, "a", "a0")
    life = begin()  # its message is not in memory now
    units, calls = log.GetQueueUnits, []

    def found_later(request: Any) -> Any:
        calls.append(request)
        if len(calls) == 1:
            raise TopicNotFoundError("not built yet", topic=request.topic)
        return units(request)

    monkeypatch.setattr(log, "GetQueueUnits", found_later)
    sync(life, "c", ADD, "a")
    assert consume(life) == ["a0"]


def test_a_late_acknowledgement_is_told_so(log: MemoryLog, clock: ManualClock, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "m0")
    (one,) = life.pop(poll())
    clock.now += 11_000
    life.expire()
    assert life.acks.ack("g", [one.receipt_handle]) == [TOO_LATE]


# -- what happens while a poll reads


def meanwhile(life: LogLife, action: Callable[[], object]) -> list[object]:
    """Do something while the next poll reads records; what it gave."""
    reader: Any = life.life.reader
    done: list[object] = []
    read = reader.records

    def records(units: Any, body_bytes_max: int) -> Any:
        if not done:
            done.append(None)
            done[0] = action()
        return read(units, body_bytes_max)

    reader.records = records
    return done


def test_two_polls_never_have_the_same_lite_topic(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    for client_id in ("c", "d"):
        sync(life, client_id, ADD, "a")
    send(log, "a", "a0")
    other = meanwhile(life, lambda: get(life, "d"))
    assert get(life, "c") == ["a0"]
    assert other == [[]]


@pytest.mark.parametrize("ends", ["empty", "failed", "handed out"])
def test_a_poll_that_passed_what_another_one_looked_at_was_not_woken(log: MemoryLog, life: LogLife, ends: str) -> None:
    """It waited for up to 20 s when the other one handed nothing out."""
    bind(log, life)
    for client_id in ("c", "d"):
        sync(life, client_id, ADD, "a")
    send(log, "a", "a0")
    watcher = life.arrivals.watch()

    def look() -> list[str]:
        watcher.take(0)
        found = get(life, "d")
        if ends == "empty":
            life.pulls.reset("g", lite_queue_name(PARENT, "a"), {0: 1}, dry_run=False)
            watcher.take(0)
        if ends == "failed":
            raise StoreError("unreadable")
        return found

    meanwhile(life, look)
    if ends == "failed":
        with pytest.raises(StoreError):
            get(life, "c")
    else:
        assert get(life, "c") == (["a0"] if ends == "handed out" else [])
    woken = watcher.take(0).lite_clients
    assert (("g", PARENT, "d") in woken) is (ends != "handed out")
    if ends == "failed":
        assert get(life, "d") == ["a0"]


def test_what_was_picked_before_a_reset_is_not_handed_out_behind_it(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    send(log, "a", "a0")
    assert consume(life) == ["a0"]
    send(log, "a", "a1")
    meanwhile(life, lambda: life.pulls.reset("g", lite_queue_name(PARENT, "a"), {0: 0}, dry_run=False))
    assert get(life) == []
    assert get(life) == ["a0", "a1"]


def test_a_client_that_loses_a_lite_topic_while_it_polls_gets_nothing_of_it(log: MemoryLog, life: LogLife) -> None:
    bind(log, life, is_exclusive=True)
    sync(life, "c", ADD, "a")
    send(log, "a", "a0")
    meanwhile(life, lambda: sync(life, "d", ADD, "a"))
    assert get(life, "c") == []
    assert get(life, "d") == ["a0"]


def test_an_acknowledgement_that_leaves_others_in_flight_wakes_nobody(log: MemoryLog, life: LogLife) -> None:
    bind(log, life)
    sync(life, "c", ADD, "a")
    for number in range(3):
        send(log, "a", f"a{number}")
    first = life.pop(poll(max_messages=2))
    watcher = life.arrivals.watch()
    watcher.take(0)
    life.acks.ack("g", [first[0].receipt_handle])
    assert watcher.take(0).lite_clients == set()
