"""Who lives, who is gone, and how many are remembered."""

import os
from pathlib import Path

import pytest

from consumer_svc import live_consumers as clients_module
from consumer_svc.live_consumers import MEMBER_SECONDS, RENEWED_SECONDS, LiveConsumers
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1.gateway_service_pb2 import MessageFilter


class Seconds:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def client(group: str, name: str) -> pb.Client:
    """A consumer."""
    return pb.Client(consumer_group=group, client_id=name)


def test_a_member_that_is_silent_is_gone_after_two_minutes() -> None:
    clock = Seconds()
    clients = LiveConsumers(clock)
    clients.keep(client("g", "b"))
    clients.keep(client("g", "a"))
    assert [one.client_id for one in clients.members("g")] == ["a", "b"]
    clock.now += MEMBER_SECONDS / 2
    clients.keep(client("g", "a"))
    clock.now += MEMBER_SECONDS / 2
    assert [one.client_id for one in clients.members("g")] == ["a"]
    clients.end("g", "a")
    clients.end("g", "a")
    assert (clients.members("g"), clients.count()) == ([], 0)


def test_the_late_end_of_a_connection_took_a_client_away_that_had_come_by_another_one() -> None:
    changed = list[str]()
    clients = LiveConsumers(Seconds(), changed=changed.append)
    for address in ("ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"):
        clients.keep(pb.Client(consumer_group="g", client_id="a", address=address))
    assert not clients.end("g", "a", "ipv4:127.0.0.1:1")
    assert [one.client_id for one in clients.members("g")] == ["a"]
    assert clients.end("g", "a", "ipv4:127.0.0.1:2")
    assert clients.end("g", "a", "ipv4:127.0.0.1:2")
    assert (clients.members("g"), changed) == ([], ["g", "g"])


def test_a_member_that_said_the_same_again_was_made_anew() -> None:
    clients = LiveConsumers(Seconds())
    clients.keep(client("g", "a"))
    (first,) = clients.members("g")
    clients.keep(client("g", "a"))
    assert clients.members("g")[0] is first
    other = client("g", "a")
    other.version = "2"
    clients.keep(other)
    assert clients.members("g") == [other]


def test_a_change_of_members_is_told_and_a_sign_of_life_is_not() -> None:
    clock, changed = Seconds(), list[str]()
    clients = LiveConsumers(clock, changed=changed.append)
    subscribed = client("g", "a")
    subscribed.subscriptions.add(topic="T")
    for member, told in (("a", ["g"]), ("b", ["g", "g"]), ("a", ["g", "g"])):
        clients.keep(client("g", member))
        assert changed == told
    clients.keep(subscribed)
    clients.keep(subscribed)
    assert changed == ["g"] * 3, "another subscription is a change"
    clients.end("g", "b")
    clients.end("g", "b")
    assert changed == ["g"] * 4
    clock.now += MEMBER_SECONDS
    clients.members("other")
    assert changed == ["g"] * 5, "so is a member that is silent for too long"


def test_all_clients_are_renewed_until_they_had_time_to_be_heard_of() -> None:
    clock = Seconds()
    clients = LiveConsumers(clock)
    assert clients.is_renewed("g", "a")
    clock.now += RENEWED_SECONDS
    assert not clients.is_renewed("g", "a")
    clients.keep(client("g", "a"))
    assert clients.is_renewed("g", "a")
    clock.now += RENEWED_SECONDS
    assert not clients.is_renewed("g", "a")


def test_a_member_that_is_silent_reads_no_retry_topic_although_it_is_not_gone_yet() -> None:
    """With both dead it still seemed that members pull: one counted for 120 s, the other for 30 s."""
    clock = Seconds()
    clients = LiveConsumers(clock)
    puller = client("g", "puller")
    puller.subscriptions.add(topic="%RETRY%g")
    clients.keep(puller)
    clients.keep(client("g", "popper"))
    clock.now += RENEWED_SECONDS
    assert (clients.has_pullers("g"), clients.reads_only_pull_retries("g")) == (True, False)
    clients.keep(puller)
    assert clients.reads_only_pull_retries("g")
    clients.note_pop("g", "proxied")
    clients.keep(puller)
    assert not clients.reads_only_pull_retries("g")
    clients.end("g", "puller")
    clients.end("g", "popper")
    clients.note_pop("g", "proxied")
    assert clients._popped_by_others == {}


def test_clients_of_groups_that_nobody_asks_about_are_forgotten_after_two_minutes() -> None:
    clock = Seconds()
    clients = LiveConsumers(clock)
    for number in range(15):
        clients.keep(client(f"g{number}", "a"))
    assert clients.count() == 15
    clock.now += MEMBER_SECONDS
    clients.keep(client("new", "a"))
    assert [one.client_id for one in clients.members("new")] == ["a"]
    assert clients.count() == 1
    assert len(clients._seen) == 1


def test_invented_clients_kept_out_those_that_live() -> None:
    """A caller may name any number of ids; whoever came first had the room for two minutes."""
    clock = Seconds()
    clients = LiveConsumers(clock, count_max=10)
    for number in range(100):
        if number % 5 == 0:  # a heartbeat
            clients.keep(client("good", "a"))
        clients.keep(client(f"invented-{number % 7}", f"c{number}"))
    assert clients.count() == 10
    clock.now = 1_000.0 + RENEWED_SECONDS
    clients.keep(client("good", "a"))
    assert clients.is_renewed("good", "a")
    assert [one.client_id for one in clients.members("good")] == ["a"]
    assert sum(len(clients.members(f"invented-{number}")) for number in range(7)) == 9


def test_subscriptions_of_large_clients_have_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "LARGE_CLIENT_BYTES_MAX", 10_000)

    def large(name: str) -> pb.Client:
        return pb.Client(
            consumer_group="g", client_id=name, subscriptions=[gateway_pb.TopicSubscription(topic="t" * 4_000)]
        )

    clients = LiveConsumers(Seconds())
    for name in "abc":
        clients.keep(large(name))
    clients.keep(
        pb.Client(consumer_group="g", client_id="small", subscriptions=[gateway_pb.TopicSubscription(topic="t")])
    )
    assert [len(one.subscriptions) for one in clients.members("g")] == [1, 1, 0, 1]
    clients.end("g", "a")
    clients.keep(large("b"))
    clients.keep(large("c"))
    assert [len(one.subscriptions) for one in clients.members("g")] == [1, 1, 1]


def test_a_caller_that_invents_members_pushes_out_none_of_another_caller() -> None:
    clients = LiveConsumers(Seconds(), count_max=100)
    victim = client("good", "a")
    victim.caller = "identity:victim"
    clients.keep(victim)
    for number in range(1_000):
        invented = client(f"invented-{number}", "c")
        invented.caller = "identity:attacker"
        clients.keep(invented)
    assert clients.count() == 11
    assert [one.client_id for one in clients.members("good")] == ["a"]


def memory_bytes() -> int:
    """What this process takes of the machine's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("room_bytes", [1, 64 << 20], ids=["no-room", "room"])
def test_a_member_kept_the_request_that_named_it_in_memory(monkeypatch, room_bytes: int) -> None:
    """A part of a message keeps the whole: 150 MB of handles, and of subscriptions that had found no room."""
    monkeypatch.setattr(clients_module, "LARGE_CLIENT_BYTES_MAX", room_bytes)
    clients = LiveConsumers(Seconds())
    before = memory_bytes()
    for number in range(150):
        request = pb.KeepClientsRequest(
            clients=[client("g", f"c{number}")], delivered_receipt_handles=["h" * 500_000, "i" * 250_000]
        )
        if room_bytes == 1:
            for at in range(100):
                request.clients[0].subscriptions.add(topic=f"T{at}", filter=MessageFilter(tags="a" * 2_500))
        for named in pb.KeepClientsRequest.FromString(request.SerializeToString()).clients:
            clients.keep(named)
    assert clients.count() == 150
    assert memory_bytes() - before < 50 << 20
