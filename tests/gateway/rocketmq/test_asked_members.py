"""Members over gRPC: what the gateway knows of them in RocketMQ's words, and what they are asked."""

import queue
from unittest.mock import Mock

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.timers import Timers
from gateway.groups.asked_members import RUNNING_INFO_SECONDS, AskedMembers, Told
from gateway.ports.delivery import DeliveringSource
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.sessions import TelemetrySession
from reput.consumer.v1.consumer_service_pb2 import Client
from reput.gateway.v1.gateway_service_pb2 import MessageFilter, TopicSubscription
from reput.message.v1.message_pb2 import StoredMessage
from services.rocketmq.fastjson import loads
from store.errors import ServiceUnavailableError, UnsupportedStoreError
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import GROUP, serving
from tests.support.waiting import WAIT_SECONDS_MAX

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


@pytest.fixture
def now():
    """What the clock of the timers shows, in seconds."""
    return [0.0]


@pytest.fixture
def timers(now):
    return Timers(clock=lambda: now[0])


@pytest.fixture
def members(clients, timers, now):
    return MessagingMembers(clients, timers, clock=lambda: now[0], wall_clock=lambda: 1_000.0)


@pytest.fixture
def asked(members):
    """The questions to c1, and how it answers one."""
    questions = queue.SimpleQueue()
    session = Mock(spec_set=TelemetrySession)
    session.ask_member.side_effect = lambda question, answered: (
        questions.put((question, answered)) or (lambda: answered(None))
    )
    members.settle("c1", session)
    return questions


def asking(members):
    of_all = AskedMembers()
    of_all.ways.append(members)
    return of_all


def told_by(members, group, client_id):
    answers = []
    is_known = asking(members).ask(group, client_id, answers.append, with_stack_trace=False)
    assert len(answers) == is_known
    return answers[0] if answers else None


def test_settings_version_and_subscriptions_of_a_member_are_told(members):
    told = told_by(members, "billing", "c1")
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


def test_a_member_that_takes_messages_itself_consumes_actively(members, clients):
    clients.settle(Client(client_id="c2", consumer_group="billing", kind="simple consumer"), 3.0)
    document = loads(told_by(members, "billing", "c2").body)
    assert document["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"


def test_other_members_are_none_of_this_door(members):
    assert told_by(members, "other", "c1") is None
    assert told_by(members, "billing", "c9") is None
    assert not asking(members).consume("billing", "c9", StoredMessage(), print)


def test_a_member_prints_the_stacks_of_its_threads(members, asked):
    answers = []
    assert asking(members).ask("billing", "c1", answers.append, with_stack_trace=True)
    question, answered = asked.get_nowait()
    assert question.HasField("print_thread_stack_trace_command")
    assert answers == []
    answered(v2.TelemetryCommand(thread_stack_trace=v2.ThreadStackTrace(thread_stack_trace='main\n\t"at" a.b')))
    document = loads(answers[0].body)
    assert document.pop("jstack") == 'main\n\t"at" a.b'
    assert document == loads(told_by(members, "billing", "c1").body)


@pytest.mark.parametrize(
    ("code", "result"),
    [(v2.OK, "CR_SUCCESS"), (v2.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"), (v2.MESSAGE_CORRUPTED, "CR_RETURN_NULL")],
)
def test_a_member_consumes_a_message_and_tells_as_the_proxy_does(members, asked, now, code, result):
    answers = []
    message = StoredMessage(topic="Orders", body=b"body", unique_key="K")
    assert asking(members).consume("billing", "c1", message, answers.append)
    question, answered = asked.get_nowait()
    given = question.verify_message_command.message
    assert (given.topic.name, given.body, given.system_properties.message_id) == ("Orders", b"body", "K")
    assert given.system_properties.receipt_handle == ""
    now[0] += 0.25
    answered(v2.TelemetryCommand(status=v2.Status(code=code), verify_message_result=v2.VerifyMessageResult()))
    assert answers[0].body == (
        b'{"autoCommit":true,"consumeResult":"%b","order":false,"remark":"from gRPC client","spentTimeMills":250}'
        % result.encode()
    )


def test_a_member_that_refuses_or_does_not_answer_is_told_as_a_failure(members, asked, timers, now):
    answers = []
    assert asking(members).consume("billing", "c1", StoredMessage(topic="Orders"), answers.append)
    _, answered = asked.get_nowait()
    status = v2.Status(code=v2.NOT_IMPLEMENTED, message="a simple one")
    answered(v2.TelemetryCommand(status=status, verify_message_result=v2.VerifyMessageResult()))
    assert "the member c1 of billing refuses: a simple one" in answers[0].message
    assert timers.count == 0
    assert asking(members).ask("billing", "c1", answers.append, with_stack_trace=True)
    now[0] += RUNNING_INFO_SECONDS - 1
    timers.run_due()
    assert len(answers) == 1
    now[0] += 2
    timers.run_due()
    assert isinstance(answers[1], ServiceUnavailableError)
    assert "c1 of billing did not answer within 10 s" in answers[1].message


def test_a_member_that_has_no_stream_or_takes_its_messages_itself_is_named(members, clients, asked):
    answers = []
    for client_id, kind in (("c2", "simple consumer"), ("c3", "push consumer")):
        clients.settle(Client(client_id=client_id, consumer_group="billing", kind=kind), 3.0)
        assert asking(members).consume("billing", client_id, StoredMessage(), answers.append)
    assert isinstance(answers[0], UnsupportedStoreError)
    assert "c2 of billing is a simple consumer over gRPC" in answers[0].message
    assert "c3 of billing has no Telemetry stream to this gateway" in answers[1].message


def test_the_end_of_an_older_stream_of_a_member_leaves_the_newer_one(members, asked):
    members.drop("c1", Mock(spec_set=TelemetrySession))
    assert asking(members).ask("billing", "c1", print, with_stack_trace=True)
    assert asked.qsize() == 1


def test_a_consumer_is_asked_on_its_stream_while_it_says_nothing():
    """A stream has one thread, which waits for the client."""
    says, answers = queue.SimpleQueue(), queue.SimpleQueue()
    with serving(MemoryDelivering("broker-a")) as gateway:
        consumer = gateway.consumer(client_id="c1")
        stream = consumer.stub.Telemetry(iter(says.get, None), metadata=consumer.metadata, timeout=WAIT_SECONDS_MAX)
        says.put(v2.TelemetryCommand(settings=consumer.settings()))
        assert next(stream).HasField("settings")
        for number in range(3):
            assert gateway.members.ask(GROUP, "c1", answers.put, with_stack_trace=True)
            trace = v2.ThreadStackTrace(
                nonce=next(stream).print_thread_stack_trace_command.nonce, thread_stack_trace=f"main {number}"
            )
            says.put(v2.TelemetryCommand(status=v2.Status(code=v2.OK), thread_stack_trace=trace))
            assert loads(answers.get(timeout=WAIT_SECONDS_MAX).body)["jstack"] == f"main {number}"
        message = StoredMessage(topic="Orders", body=b"body")
        assert gateway.members.consume(GROUP, "c1", message, answers.put)
        question = next(stream).verify_message_command
        assert question.message.body == b"body"
        says.put(v2.TelemetryCommand(settings=consumer.settings()))
        assert next(stream).HasField("settings"), "it is answered meanwhile"
        says.put(None)
        assert list(stream) == []
        assert "its stream has ended" in answers.get(timeout=WAIT_SECONDS_MAX).message
