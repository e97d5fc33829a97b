"""Watchers hear what may have arrived, and a slow one costs a bounded set of names."""

import threading

import pytest

from consumer_svc.arrivals import MESSAGE_BYTES_MAX, NAME_COUNT_MAX, Arrivals, Arrived
from tests.support.waiting import WAIT_SECONDS_MAX


def test_a_new_watcher_first_hears_that_it_shall_look_at_everything() -> None:
    watcher = Arrivals().watch()
    assert watcher.take(0).all
    assert not watcher.take(0)


def test_topics_and_groups_are_kept_until_they_are_taken() -> None:
    arrivals = Arrivals()
    watcher, other = arrivals.watch(), arrivals.watch()
    watcher.take(0)
    arrivals.note_topics(["a", "b"])
    arrivals.note_topics(["a"])
    arrivals.note_group("g", "c")
    arrivals.note_members("h")
    arrived = watcher.take(0)
    assert arrived.member_groups == {"h"}
    assert (arrived.topics, arrived.group_topics, arrived.all) == ({"a", "b"}, {("g", "c")}, False)
    assert other.take(0).all


def test_queues_are_kept_beside_topics_until_they_are_taken() -> None:
    arrivals = Arrivals()
    watcher, other = arrivals.watch(), arrivals.watch()
    for each in (watcher, other):
        each.take(0)
    arrivals.note_queues({"a": [1], "b": {2}})
    arrivals.note_queues({"a": [3, 1]})
    arrivals.note_topics(["b"])
    for each in (watcher, other):
        arrived = each.take(0)
        assert (arrived.queues, arrived.topics) == ({"a": {1, 3}, "b": {2}}, {"b"})
    assert not watcher.take(0)


@pytest.mark.parametrize("topic_count", [1, 3 * NAME_COUNT_MAX])
def test_a_slow_watcher_of_many_queues_hears_that_it_shall_look_at_everything(topic_count: int) -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    watcher.take(0)
    for number in range(3 * NAME_COUNT_MAX):
        arrivals.note_queues({str(number % topic_count): [number]})
        assert sum(map(len, watcher._arrived.queues.values())) <= NAME_COUNT_MAX
    assert watcher.take(0).all


def test_a_slow_watcher_keeps_a_bounded_number_of_lost_lite_topics() -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    watcher.take(0)
    for number in range(3):
        arrivals.note_lost([("g", "p", "c", f"{number}-{each}") for each in range(NAME_COUNT_MAX // 2 + 1)])
    assert len(watcher.take(0).lost) <= NAME_COUNT_MAX


def test_polls_of_all_groups_looked_again_when_very_many_clients_of_lite_topics_had_news() -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    watcher.take(0)
    arrivals.note_topics(["a"])
    for number in range(3):
        arrivals.note_lite([("g", "p", f"{number}-{each}") for each in range(NAME_COUNT_MAX // 2 + 1)])
        assert len(watcher._arrived.lite_clients) <= NAME_COUNT_MAX
    arrived = watcher.take(0)
    assert (arrived.all, arrived.all_lite_clients, arrived.lite_clients, arrived.topics) == (False, True, set(), {"a"})
    arrivals.note_lite([("g", "p", "c")])
    assert not watcher.take(0).all_lite_clients


def test_arrivals_with_long_names_were_longer_than_a_message_may_be() -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    name = "x" * 250
    topics = [f"{name[:120]}{number}" for number in range(2_000)]
    clients = {(name, name, f"{name}{number}") for number in range(NAME_COUNT_MAX)}
    lost = {(*client, "chat") for client in clients}
    arrivals.note_topics(topics[:1_000])
    watcher.take(0)
    arrivals.note_topics(topics[:1_000])
    arrivals.note_queues({topic: [3, 1] for topic in topics[1_000:]})
    arrivals.note_group("g", "t")
    arrivals.note_members("h")
    arrivals.note_lite(clients)
    arrivals.note_lost(lost)
    messages = list(watcher.take(0).messages())
    assert max(message.ByteSize() for message in messages) <= MESSAGE_BYTES_MAX
    assert len(messages) < 64
    rows = [row for message in messages for row in message.lite_clients]
    assert sorted((row.consumer_group, row.topic, row.client_id) for row in rows) == sorted(clients)
    gone = [row for message in messages for row in message.lost_lite_topics]
    assert {(row.consumer_group, row.topic, row.client_id, row.lite_topic) for row in gone} == lost
    assert len(gone) == len(lost)
    assert sorted(topic for message in messages for topic in message.topics) == sorted(topics)
    for message in messages:
        assert {row.topic: list(row.queue_ids) for row in message.queues} == {
            topic: [1, 3] for topic in message.topics if topic in topics[1_000:]
        }
    assert [row.consumer_group for message in messages for row in message.group_topics] == ["g"]
    assert [group for message in messages for group in message.member_groups] == ["h"]
    assert not any(message.all or message.all_lite_clients for message in messages)


def test_marks_for_everything_stand_in_the_first_of_several_messages() -> None:
    arrived = Arrived(
        all=True, all_lite_clients=True, member_groups={f"{'x' * 250}{number}" for number in range(9_000)}
    )
    messages = list(arrived.messages())
    assert len(messages) > 2
    assert [(message.all, message.all_lite_clients) for message in messages] == [
        (number == 0, number == 0) for number in range(len(messages))
    ]
    assert sum(len(message.member_groups) for message in messages) == 9_000


def test_a_slow_watcher_hears_that_it_shall_look_at_everything() -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    watcher.take(0)
    for number in range(3 * NAME_COUNT_MAX):
        arrivals.note_topics([str(number)])
        assert len(watcher._arrived.topics) <= NAME_COUNT_MAX
    assert watcher.take(0).all


def test_a_forgotten_watcher_hears_nothing_more() -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    watcher.take(0)
    arrivals.forget(watcher)
    arrivals.note_all()
    assert not watcher.take(0)


def test_a_watcher_that_waits_is_let_go_at_the_end() -> None:
    arrivals = Arrivals()
    watcher = arrivals.watch()
    watcher.take(0)
    waiting = threading.Thread(target=watcher.take, args=(60.0,))
    waiting.start()
    arrivals.end()
    waiting.join(WAIT_SECONDS_MAX)
    assert not waiting.is_alive()


def test_every_watcher_hears_of_topics_that_are_told_as_a_generator() -> None:
    """Each gateway watches; with two of them the polls of the second one were not woken."""
    arrivals = Arrivals()
    watchers = [arrivals.watch() for _ in range(3)]
    for watcher in watchers:
        watcher.take(0.0)
    arrivals.note_topics(topic for topic in ("t", "u"))
    assert [watcher.take(0.0).topics for watcher in watchers] == [{"t", "u"}] * 3
