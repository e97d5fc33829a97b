"""Topics that a client names as a producer on its Telemetry stream: it is asked about their transactions, with the messages."""

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from tests.gateway.auth.conftest import access_text, shown
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import serving
from tests.support.waiting import WAIT_SECONDS_MAX

CLIENTS = {"writer": {"write": ["shop-*"]}, "reader": {"read": ["*"]}}


def test_a_client_is_asked_only_about_topics_that_it_may_write_to(tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(access_text(CLIENTS))
    sign_in = SignIn(
        WatchedFile("access_file", path, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    lines = []
    guard = GatewayGuard(sign_in, Audit(lambda event, **fields: lines.append((event, fields)), lambda: 0.0))
    with serving(MemoryDelivering(), guard=guard) as gateway:
        for client, topics, allowed in (
            ("writer", ["shop-orders", "shop-bills"], True),
            ("writer", ["shop-orders", "bank-transfers"], False),
            ("reader", ["bank-transfers"], False),
        ):
            caller = gateway.consumer(client_id=f"{client}-{allowed}")
            settings = v2.Settings(client_type=v2.PRODUCER)
            settings.publishing.topics.extend(v2.Resource(name=topic) for topic in topics)
            stream = caller.stub.Telemetry(
                iter([v2.TelemetryCommand(settings=settings)]),
                metadata=[*caller.metadata, *shown(client)],
                timeout=WAIT_SECONDS_MAX,
            )
            if allowed:
                assert next(stream).WhichOneof("command") == "settings"
                continue
            with pytest.raises(grpc.RpcError) as refused:
                list(stream)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert {fields["topic"] for event, fields in lines if "denied" in event} == {"bank-transfers"}


def test_a_client_subscribed_to_topics_that_it_may_not_read(tmp_path):
    """It was shown as a member that consumes them."""
    path = tmp_path / "access.toml"
    path.write_text(access_text({"reader": {"read": ["shop-*"], "write": ["bank-*"]}}))
    sign_in = SignIn(
        WatchedFile("access_file", path, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    guard = GatewayGuard(sign_in, Audit(lambda event, **fields: None, lambda: 0.0))
    with serving(MemoryDelivering(), guard=guard) as gateway:
        for number, (topics, allowed) in enumerate(
            ((["shop-orders"], True), (["shop-orders", "bank-transfers"], False), (["bank-transfers"], False))
        ):
            caller = gateway.consumer(client_id=f"client-{number}")
            settings = v2.Settings(client_type=v2.PUSH_CONSUMER)
            settings.subscription.group.name = "group"
            for topic in topics:
                settings.subscription.subscriptions.add().topic.name = topic
            stream = caller.stub.Telemetry(
                iter([v2.TelemetryCommand(settings=settings)]),
                metadata=[*caller.metadata, *shown("reader")],
                timeout=WAIT_SECONDS_MAX,
            )
            if allowed:
                assert next(stream).WhichOneof("command") == "settings"
                continue
            with pytest.raises(grpc.RpcError) as refused:
                list(stream)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
