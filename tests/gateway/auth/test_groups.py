"""`groups` in the access file: which consumer groups a client may consume for, through RocketMQ's contract."""

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access import READ, Access, Role
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from tests.gateway.auth.conftest import access_text, key_of, shown
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import TOPIC, serving

OWN, OTHER = "shop-billing", "bank-billing"
METHODS = [
    *("ReceiveMessage", "AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue", "PullMessage"),
    *("GetOffset", "UpdateOffset", "QueryAssignment", "Heartbeat", "Telemetry", "NotifyClientTermination"),
    "SyncLiteSubscription",
]
CLIENTS = {
    "limited": {"read": ["*"], "groups": ["shop-*"]},
    "of-none": {"read": ["*"], "groups": []},
    "of-all": {"read": ["*"]},
}


@pytest.mark.parametrize(
    ("groups", "group", "allowed"),
    [
        (None, "any", True),
        ([], "any", False),
        (["shop-*"], "shop-billing", True),
        (["shop-*"], "bank-shop-billing", False),
        (["a", "b*"], "a", True),
        (["a", "b*"], "ab", False),
        (["*"], "any", True),
        (["shop"], "shop\n", False),
        (["shop-*"], "shop-" + "x" * 250, True),
        (["shop-*"], "shop-" + "x" * 251, False),  # longer than a group: no pattern is tried
        (["shop-*", "*"], "x" * 256, True),
        (None, "x" * 256, True),
    ],
)
def test_without_patterns_every_group_is_allowed_and_with_them_only_those_that_fit(groups, group, allowed):
    assert Access("a", {Role.READ: ["*"]}, groups).allows_group(group) is allowed


@pytest.mark.parametrize(
    ("groups", "group", "named"),
    [
        (None, "any", False),
        (["*"], "any", False),
        (["**"], "any", False),
        (["*", "shop-*"], "shop-billing", True),
        (["*", "shop-*"], "bank-billing", False),
        (["shop"], "shop_orders", False),
        (["*x"], "x" * 255, True),
        (["*x"], "x" * 256, False),
    ],
)
def test_a_group_is_named_by_more_than_a_star(groups, group, named):
    access = Access("a", {Role.READ: ["orders"]}, groups)
    assert access.names_group(group) is named
    assert access.as_member.allows(READ, f"%RETRY%{group[:200]}") is (named or len(group) > 255)


def test_the_rights_of_several_jwt_groups_are_added():
    def rights(groups):
        return Access("a", {Role.READ: ["*"]}, groups)

    both = rights(["shop-*"]).and_also(rights(["bank-*"]))
    assert both.allows_group("shop-x")
    assert both.allows_group("bank-x")
    assert not both.allows_group("other")
    assert rights(["shop-*"]).and_also(rights(None)).allows_group("other")


def test_a_file_tells_a_client_without_groups_from_one_that_says_nothing_of_them():
    clients = parse_access_file(access_text(CLIENTS).encode())
    by_name = {access.name: access for access in clients.by_key_hash.values()}
    assert [by_name[name].allows_group(OWN) for name in CLIENTS] == [True, False, True]
    assert [by_name[name].allows_group(OTHER) for name in CLIENTS] == [False, False, True]
    with pytest.raises(ValueError, match="groups"):
        parse_access_file(access_text({"a": {"groups": ["a b"]}}).encode())


@pytest.fixture
def lines():
    return []


@pytest.fixture
def guarded(tmp_path, lines):
    path = tmp_path / "access.toml"
    path.write_text(access_text(CLIENTS))
    sign_in = SignIn(
        WatchedFile("access_file", path, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    guard = GatewayGuard(sign_in, Audit(lambda event, **fields: lines.append((event, fields)), lambda: 0.0))
    with serving(MemoryDelivering(), guard=guard) as gateway:
        yield gateway


def consumer_of(gateway, client, group, client_id="client-1"):
    consumer = gateway.consumer(group=group, client_id=client_id)
    consumer.metadata += shown(client)
    return consumer


def acts(consumer):
    """What a member of a group calls, by name."""
    queue = v2.MessageQueue(topic=consumer.topic, broker=v2.Broker(name="broker-a"))
    return {
        "ReceiveMessage": lambda: list(consumer.poll(seconds=5, timeout=10)),
        "AckMessage": lambda: consumer.ack("nonsense"),
        "ChangeInvisibleDuration": lambda: consumer.change("nonsense", 1),
        "ForwardMessageToDeadLetterQueue": lambda: consumer.forward("nonsense"),
        "PullMessage": lambda: list(
            consumer.call("PullMessage", v2.PullMessageRequest(group=consumer.group, message_queue=queue))
        ),
        "GetOffset": lambda: consumer.call("GetOffset", v2.GetOffsetRequest(group=consumer.group, message_queue=queue)),
        "UpdateOffset": lambda: consumer.call(
            "UpdateOffset", v2.UpdateOffsetRequest(group=consumer.group, message_queue=queue)
        ),
        "QueryAssignment": lambda: consumer.call(
            "QueryAssignment", v2.QueryAssignmentRequest(group=consumer.group, topic=consumer.topic)
        ),
        "Heartbeat": lambda: consumer.call(
            "Heartbeat", v2.HeartbeatRequest(group=consumer.group, client_type=v2.PUSH_CONSUMER)
        ),
        "Telemetry": lambda: consumer.tell(consumer.settings()),
        "NotifyClientTermination": lambda: consumer.call(
            "NotifyClientTermination", v2.NotifyClientTerminationRequest(group=consumer.group)
        ),
        "SyncLiteSubscription": lambda: consumer.call(
            "SyncLiteSubscription", v2.SyncLiteSubscriptionRequest(group=consumer.group, topic=consumer.topic)
        ),
    }


@pytest.mark.parametrize("method", METHODS)
def test_a_client_consumes_for_its_groups_and_for_no_other(guarded, lines, method):
    for client, group, allowed in (
        ("limited", OWN, True),
        ("of-all", OTHER, True),
        ("limited", OTHER, False),
        ("of-none", OWN, False),
    ):
        act = acts(consumer_of(guarded, client, group, client_id=f"client-of-{client}"))[method]
        if allowed:
            act()
            continue
        with pytest.raises(grpc.RpcError) as refused:
            act()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert key_of(client) not in refused.value.details()
    denied = [fields["client"] for event, fields in lines if event == "audit.denied"]
    assert denied == ["limited", "of-none"]


def test_whoever_knew_the_id_of_a_client_could_end_it(guarded, lines):
    """The call named no group, so no right was looked up, and the polls of another group's client ended."""
    other = consumer_of(guarded, "of-all", OTHER)
    assert other.tell(other.settings())
    own = consumer_of(guarded, "limited", OWN)
    for request in (v2.NotifyClientTerminationRequest(), v2.NotifyClientTerminationRequest(group=own.group)):
        with pytest.raises(grpc.RpcError) as refused:
            own.call("NotifyClientTermination", request)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert guarded.clients.find("client-1").facts.consumer_group == OTHER
    assert [fields["client"] for event, fields in lines if event == "audit.denied"] == ["limited"] * 2
    assert other.call("NotifyClientTermination", v2.NotifyClientTerminationRequest()).status.code == v2.OK
    assert guarded.clients.find("client-1") is None


def test_a_handle_of_another_group_does_not_help(guarded):
    shard = guarded.delivering.named("broker-a")
    shard.store(TOPIC, b"secret")
    other = consumer_of(guarded, "of-all", OTHER)
    _, (message,) = other.receive()
    handle = message.system_properties.receipt_handle
    own = consumer_of(guarded, "limited", OWN)
    assert own.ack(handle).entries[0].status.code == v2.INVALID_RECEIPT_HANDLE
    assert other.ack(handle).status.code == v2.OK
