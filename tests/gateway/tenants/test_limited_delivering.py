"""What namespaces get beyond their rate waits, and is refused when it would wait too long."""

from typing import Any

import pytest

from gateway.delivery.timers import TICK_SECONDS, Timers
from gateway.ports.delivery import Pulled
from gateway.shards.remote_delivery import RemoteDelivering
from gateway.tenants.limited_delivering import HOLD_SECONDS_MAX, LimitedDelivering
from gateway.tenants.tenants import Tenants
from gateway.tenants.tenants_file import parse_tenants_file
from gateway.tenants.usage import Usage
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import QuotaExceededError, StoreError, TopicNotFoundError

POP = pb.PopMessagesRequest(topic="a%Orders", consumer_group="a%billing")
PULL = pb.PullMessagesRequest(topic="a%Orders")


class Shard:
    """A consumer service that answers at once, and time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        self.now_seconds = 0.0
        self.batch_count = 32
        self.asked: list[Any] = []
        self.outcome: StoreError | None = None
        self.timers = Timers(lambda: self.now_seconds)
        file = parse_tenants_file(text.encode())
        self.tenants = Tenants(lambda: file, lambda: self.now_seconds)
        for name in ("pop", "pull", "make_group", "commit_offset"):
            monkeypatch.setattr(RemoteDelivering, name, getattr(self, f"_{name}"))
        self.delivering = LimitedDelivering(
            self.tenants,
            self.timers,
            lambda: self.now_seconds,
            "broker-a",
            None,  # type: ignore[arg-type]  # not called
        )

    def _pop(self, request: Any, seconds: float, then: Any) -> None:
        self.asked.append(request)
        then(self.outcome or pb.PopMessagesResponse(deliveries=[pb.Delivery()] * self.batch_count))

    def _pull(self, request: Any, seconds: float, then: Any) -> None:
        self.asked.append(request)
        then(self.outcome or Pulled(pb.PullMessagesResponse(), [StoredMessage()] * self.batch_count))

    def _make_group(self, settings: pb.GroupSettings, caller: str, seconds: float) -> None:
        self.asked.append(settings)

    def _commit_offset(self, *position: object) -> None:
        self.asked.append(position)

    def pass_time(self, seconds: float) -> None:
        self.now_seconds += seconds
        self.timers.run_due()

    def pop(self, request: pb.PopMessagesRequest = POP) -> list[Any]:
        """What the pop is told, now or later."""
        told: list[Any] = []
        self.delivering.pop(request, 10.0, told.append)
        return told

    def pull(self, request: pb.PullMessagesRequest = PULL) -> list[Any]:
        told: list[Any] = []
        self.delivering.pull(request, 10.0, told.append)
        return told


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Shard:
    return Shard(monkeypatch, "[namespaces.a]\ndelivered_messages_per_second = 40\n[namespaces.b]\ngroups = 1")


def test_a_pop_and_a_pull_beyond_the_rate_wait_until_it_is_paid(shard: Shard) -> None:
    assert [len(told.deliveries) for told in shard.pop()] == [32]
    assert [len(told.messages) for told in shard.pull()] == [32]
    for ask in (shard.pop, shard.pull):
        shard.pass_time(100.0)
        shard.tenants.delivered("a%Orders", 65)  # of 40: 0.65 s
        told = ask()
        assert told == []
        shard.pass_time(0.6)
        assert told == []
        shard.pass_time(2 * TICK_SECONDS)
        assert len(told) == 1
        assert not isinstance(told[0], StoreError)
    assert len(shard.asked) == 4


def test_what_would_wait_longer_is_refused_when_it_has_waited_and_takes_nothing(shard: Shard) -> None:
    shard.batch_count = 1_000
    shard.pop()
    told = shard.pop()
    shard.pass_time(HOLD_SECONDS_MAX + TICK_SECONDS)
    assert [type(each) for each in told] == [QuotaExceededError]
    assert told[0].metadata == {"namespace": "a", "quota": "delivered_messages_per_second", "quotaMax": "40"}
    assert len(shard.asked) == 1
    assert shard.tenants.refused_count("a") == 1


def test_others_are_served_at_once_whatever_a_namespace_has_taken(shard: Shard) -> None:
    shard.batch_count = 1_000
    shard.pop()
    for topic in ("Orders", "b%Orders", "c%Orders"):
        for _ in range(5):
            assert len(shard.pop(pb.PopMessagesRequest(topic=topic, consumer_group="g"))) == 1
            assert len(shard.pull(pb.PullMessagesRequest(topic=topic))) == 1


def test_a_look_that_finds_nothing_or_fails_takes_nothing_from_the_rate(shard: Shard) -> None:
    shard.batch_count = 0
    for outcome in (None, TopicNotFoundError("gone")):
        shard.outcome = outcome
        for _ in range(100):
            assert len(shard.pop()) == 1
            assert len(shard.pull()) == 1


def test_a_group_beyond_the_quota_is_refused_by_each_call_that_would_make_it(shard: Shard) -> None:
    shard.tenants.now()["b"].has = Usage(groups={"b%first"})
    shard.delivering.make_group(pb.GroupSettings(consumer_group="b%first"), "", 1.0)
    second = pb.PopMessagesRequest(topic="b%Orders", consumer_group="b%second")
    assert [type(told) for told in shard.pop(second)] == [QuotaExceededError]
    with pytest.raises(QuotaExceededError):
        shard.delivering.make_group(pb.GroupSettings(consumer_group="b%second"), "", 1.0)
    with pytest.raises(QuotaExceededError):
        shard.delivering.commit_offset("b%second", "b%Orders", 0, 1, 1.0)
    shard.delivering.commit_offset("b%first", "b%Orders", 0, 1, 1.0)
    assert len(shard.asked) == 2
