"""Who lives, who is gone, and how many are remembered."""

import pytest

from consumer_svc import clients as clients_module
from consumer_svc.clients import MEMBER_SECONDS, RENEWED_SECONDS, Clients
from reput.consumer.v1 import consumer_service_pb2 as pb


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
    clients = Clients(clock)
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


def test_all_clients_are_renewed_until_they_had_time_to_be_heard_of() -> None:
    clock = Seconds()
    clients = Clients(clock)
    assert clients.is_renewed("g", "a")
    clock.now += RENEWED_SECONDS
    assert not clients.is_renewed("g", "a")
    clients.keep(client("g", "a"))
    assert clients.is_renewed("g", "a")
    clock.now += RENEWED_SECONDS
    assert not clients.is_renewed("g", "a")


def test_clients_of_groups_that_nobody_asks_about_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "CLIENT_COUNT_MAX", 10)
    clock = Seconds()
    clients = Clients(clock)
    for number in range(15):
        clients.keep(client(f"g{number}", "a"))
    assert clients.count() == 10
    assert len(clients._seen) == 10
    clock.now += MEMBER_SECONDS
    clients.keep(client("new", "a"))
    assert [one.client_id for one in clients.members("new")] == ["a"]
    assert clients.count() == 1
    assert len(clients._seen) == 1
