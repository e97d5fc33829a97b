"""The running information of a member over gRPC: what the gateway knows, in RocketMQ's words."""

from unittest.mock import Mock

import pytest

from gateway.groups.running_info import RunningInfos, Told
from gateway.ports.delivery import DeliveringSource
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.running_info import way_to
from reput.consumer.v1.consumer_service_pb2 import Client
from reput.gateway.v1.gateway_service_pb2 import MessageFilter, TopicSubscription
from services.rocketmq.fastjson import loads
from store.errors import UnsupportedStoreError

FACTS = Client(
    client_id="c1",
    consumer_group="billing",
    language="JAVA",
    version="5.0.7",
    address="ipv4:10.0.0.1:50000",
    kind="push consumer",
    subscriptions=[
        TopicSubscription(topic="Orders", filter=MessageFilter(tags="a || b")),
        TopicSubscription(topic="Sql", filter=MessageFilter(sql="a > 1")),
    ],
)


@pytest.fixture
def clients():
    """The clients of a gateway whose clock stands at 100 s since it started."""
    now = [100.0]
    known = Clients(Mock(spec_set=DeliveringSource), clock=lambda: now[0])
    known.settle(FACTS, 3.0)
    now[0] = 160.0
    known.settle(FACTS, 3.0)  # its settings again, a minute later
    return known


def told_by(clients, group, client_id, *, with_stack_trace=False):
    answers = []
    infos = RunningInfos()
    infos.ways.append(way_to(clients, wall_clock=lambda: 1_000.0))
    is_known = infos.ask(group, client_id, answers.append, with_stack_trace=with_stack_trace)
    assert len(answers) == is_known
    return answers[0] if answers else None


def test_settings_version_and_subscriptions_of_a_member_are_told(clients):
    told = told_by(clients, "billing", "c1")
    assert isinstance(told, Told)
    assert told.is_by_gateway
    document = loads(told.body)
    assert document["properties"] == {
        "PROP_CLIENT_VERSION": "5.0.7",
        "PROP_CONSUME_ORDERLY": "false",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMER_START_TIMESTAMP": "940000",
        "address": "ipv4:10.0.0.1:50000",
        "kind": "push consumer",
        "language": "JAVA",
        "toldBy": "gateway",
    }
    wanted = {row["topic"]: (row["expressionType"], row["subString"]) for row in document["subscriptionSet"]}
    assert wanted == {"Orders": ("TAG", "a || b"), "Sql": ("SQL92", "a > 1")}
    assert (document["mqTable"], document["statusTable"]) == ({}, {})


def test_a_member_that_takes_messages_itself_consumes_actively(clients):
    clients.settle(Client(client_id="c2", consumer_group="billing", kind="simple consumer"), 3.0)
    document = loads(told_by(clients, "billing", "c2").body)
    assert document["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"


def test_stacks_are_refused_by_name_and_others_are_none_of_this_door(clients):
    refused = told_by(clients, "billing", "c1", with_stack_trace=True)
    assert isinstance(refused, UnsupportedStoreError)
    assert "c1 of billing is a push consumer over gRPC" in refused.message
    assert told_by(clients, "other", "c1") is None
    assert told_by(clients, "billing", "c9") is None
