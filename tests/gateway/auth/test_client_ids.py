"""Whose a client id is: nobody speaks in the name of a client that another identity runs."""

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth import client_ids
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.client_ids import EXPIRE_SECONDS, ClientIds
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from store.errors import InvalidArgumentError, PermissionDeniedError
from tests.gateway.auth.conftest import access_text, shown
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import serving

CLIENTS = {
    "billing": {"read": ["Orders"], "groups": ["billing"]},
    "spy": {"read": ["Orders"], "groups": ["spies"], "write": ["Orders"]},
}


class Clock:
    """Stands until a test moves it; seconds."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ids(clock):
    return ClientIds(clock)


def is_refused(ids, client_id, identity):
    try:
        ids.claim(client_id, identity)
    except PermissionDeniedError:
        return True
    return False


def test_an_id_that_is_longer_than_any_is_not_kept(ids):
    with pytest.raises(InvalidArgumentError, match="256 characters"):
        ids.claim("i" * 256, "billing")
    ids.claim("i" * 255, "billing")
    assert list(ids._identities) == ["i" * 255]


def test_a_signed_in_caller_could_speak_for_the_client_of_another(tmp_path, clock):
    path = tmp_path / "access.toml"
    path.write_text(access_text(CLIENTS))
    sign_in = SignIn(
        WatchedFile("access_file", path, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    lines = []
    audit = Audit(lambda event, **fields: lines.append((event, fields["method"])), lambda: 0.0)
    with serving(MemoryDelivering(), guard=GatewayGuard(sign_in, audit, ClientIds(clock))) as gateway:
        owner = gateway.consumer(client_id="victim", group="billing")
        owner.metadata += shown("billing")
        spy = gateway.consumer(client_id="victim", group="spies")
        spy.metadata += shown("spy")
        assert owner.tell(owner.settings())[0].status.code == v2.OK
        facts = gateway.clients.find("victim").facts
        producer = v2.Settings(client_type=v2.PRODUCER)
        producer.publishing.topics.add(name="Orders")
        calls = {
            "Telemetry": [lambda: spy.tell(spy.settings()), lambda: spy.tell(producer)],
            "Heartbeat": [
                lambda: spy.call("Heartbeat", v2.HeartbeatRequest(client_type=v2.PRODUCER)),
                lambda: spy.call("Heartbeat", v2.HeartbeatRequest(group=spy.group, client_type=v2.SIMPLE_CONSUMER)),
            ],
            "NotifyClientTermination": [
                lambda: spy.call("NotifyClientTermination", v2.NotifyClientTerminationRequest(group=spy.group))
            ],
            "SyncLiteSubscription": [
                lambda: spy.call(
                    "SyncLiteSubscription", v2.SyncLiteSubscriptionRequest(group=spy.group, topic=spy.topic)
                )
            ],
        }

        for method, some in calls.items():
            for call in some:
                lines.clear()
                with pytest.raises(grpc.RpcError) as refused:
                    call()
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                assert "in use by another client" in refused.value.details()
                assert lines == [("audit.denied", f"/apache.rocketmq.v2.MessagingService/{method}")]

        known = gateway.clients.find("victim")
        assert known.facts == facts
        assert not gateway.clients.has_ended("victim")
        heartbeat = v2.HeartbeatRequest(group=owner.group, client_type=v2.PUSH_CONSUMER)
        assert owner.call("Heartbeat", heartbeat).status.code == v2.OK

        owner.call("NotifyClientTermination", v2.NotifyClientTerminationRequest(group=owner.group))
        assert spy.tell(spy.settings())[0].status.code == v2.OK, "the id is free when its client has ended"


def test_an_id_is_its_identitys_while_it_is_used_and_for_two_minutes_more(ids, clock):
    ids.claim("c", "owner")
    for _ in range(3):
        clock.now += EXPIRE_SECONDS - 1
        assert is_refused(ids, "c", "other")  # which does not keep it alive, or hand it over
        ids.claim("c", "owner")
    clock.now += EXPIRE_SECONDS
    ids.claim("c", "other")
    assert is_refused(ids, "c", "owner")
    ids.release("c", "owner")  # not its any more
    assert is_refused(ids, "c", "owner")
    ids.release("c", "other")
    ids.claim("c", "owner")


def test_ever_new_ids_of_one_identity_take_no_id_from_another(ids, clock):
    ids.claim("mine", "owner")
    for number in range(client_ids.IDENTITY_COUNT_MAX + 500):
        clock.now += 0.001
        ids.claim(f"invented-{number}", "spy")

    assert is_refused(ids, "mine", "spy")
    assert len(ids._identities) == 1 + client_ids.IDENTITY_COUNT_MAX
    assert not is_refused(ids, "invented-0", "owner")


def test_the_ids_of_all_have_a_limit_and_the_one_used_least_recently_goes(ids, clock, monkeypatch):
    monkeypatch.setattr(client_ids, "COUNT_MAX", 3)
    for name in "abc":
        clock.now += 1
        ids.claim(name, f"identity-of-{name}")
    ids.claim("a", "identity-of-a")
    clock.now += 1
    ids.claim("d", "identity-of-d")

    assert ids._identities.keys() == {"a", "c", "d"}
    clock.now += EXPIRE_SECONDS
    ids.claim("e", "identity-of-e")
    assert ids._identities.keys() == {"e"}
    assert ids._used.keys() == {"identity-of-e"}
