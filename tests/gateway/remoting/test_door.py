"""What the door does with any request, whatever its code."""

import queue
import threading
from unittest.mock import Mock

import grpc
import pytest

from gateway.ports.shards import FanOut
from gateway.remoting.door import MAY_PASS, NAME_FIELDS, Ask, Door, RefusedError, code_of, in_thread
from gateway.remoting.door_clients import DoorClients
from gateway.remoting.opening import OpenDoor
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import ONEWAY, Command
from services.serving.admission.callers import WorkingFor, caller_here
from services.serving.admission.shares import client_of_peer
from services.status import CODE_BY_ERROR
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


def test_a_code_that_is_not_served_is_refused_by_name(client):
    answer = client.call(200_070)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 200070 not supported: lite topics"
    for code, feature in ((513, "static topics"), (902, "broker containers"), (903, "broker containers")):
        assert client.call(code).remark == f" request type {code} not supported: {feature}"
    assert client.call(999).remark == " request type 999 not supported"


def test_a_missing_field_is_told_as_rocketmq_tells_it(client):
    answer = client.call(RequestCode.GET_MAX_OFFSET, topic="t")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <queueId> is null")


def test_a_field_that_is_no_number_is_refused(client):
    answer = client.call(RequestCode.GET_MAX_OFFSET, topic="t", queueId="zero")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in answer.remark


def test_too_few_replicas_were_told_as_a_failure_that_does_not_pass():
    """So was an unreachable coordinator: 1, where a shard that is away is told as 14."""
    unavailable = [kind for kind, status in CODE_BY_ERROR.items() if status is grpc.StatusCode.UNAVAILABLE]
    assert [kind for kind in unavailable if code_of(kind("for now")) not in MAY_PASS] == []


def test_a_oneway_request_is_not_answered(client):
    client.send(client.request(RequestCode.GET_MAX_OFFSET, command_flag=ONEWAY))
    assert client.call(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class From:
    """A connection from an address."""

    def __init__(self, host, *, is_closed=False):
        self.peer = Address(host, 1)
        self.is_closed = is_closed

    def answer(self, request, answer):
        pass


def test_a_name_that_is_longer_than_any_is_refused_before_anything_looks_at_it():
    """A waiting notification, a lock or a remembered pull kept the name of a group with 900,000 characters."""
    asked, answers = [], []
    connected = From("10.0.0.1")
    connected.answer = lambda _, answer: answers.append(answer)
    door = Door({RequestCode.NOTIFICATION: asked.append}, DoorClients())
    for field, most in NAME_FIELDS.items():
        door.on_command(connected, Command(RequestCode.NOTIFICATION, {field: "x" * most, "properties": "p" * 900}))
        assert (len(asked), answers) == (1, []), field
        door.on_command(connected, Command(RequestCode.NOTIFICATION, {field: "x" * (most + 1)}))
        assert (len(asked), answers[0].code) == (1, ResponseCode.INVALID_PARAMETER), field
        assert answers[0].remark == f"{field} has {most + 1} characters: at most {most} are possible"
        asked.clear()
        answers.clear()
    door.close()


def test_a_number_that_is_mostly_blanks_and_zeros_is_none():
    door = Door({}, DoorClients())
    for text in (" " * 20 + "4", "0" * 21, "4" + "\n" * 900_000):
        ask = Ask(
            door, From("10.0.0.1"), Command(RequestCode.POP_MESSAGE, {"queueId": text}), client_of_peer("ipv4:1:1")
        )
        with pytest.raises(RefusedError, match="<queueId> is no number"):
            ask.number("queueId")
    door.close()


def test_what_a_client_asked_before_it_went_is_not_looked_for():
    looked, told, is_over = [], [], threading.Event()
    codes = RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.UNREGISTER_CLIENT, RequestCode.VIEW_MESSAGE_BY_ID
    table = {
        codes[0]: in_thread(looked.append),
        codes[1]: in_thread(told.append),
        codes[2]: lambda ask: ask.beside(is_over.set),
    }
    door = Door(table, DoorClients())
    for code in codes:
        door.on_command(From("10.0.0.1", is_closed=True), Command(code))
    assert is_over.wait(WAIT_SECONDS_MAX)
    wait_until(lambda: len(told) == 1, "what it told")
    assert looked == []
    door.close()


def test_a_heartbeat_does_not_wait_for_all_that_another_client_has_asked_for():
    may_end, has_beaten = threading.Event(), threading.Event()
    table = {
        RequestCode.GET_BROKER_CONSUME_STATS: in_thread(lambda ask: may_end.wait(WAIT_SECONDS_MAX) and None),
        RequestCode.QUERY_CONSUMER_OFFSET: in_thread(lambda ask: may_end.wait(WAIT_SECONDS_MAX) and None),
        RequestCode.HEART_BEAT: in_thread(lambda ask: has_beaten.set()),
    }
    door = Door(table, DoorClients())
    for _ in range(500):
        door.on_command(From("10.0.0.1"), Command(RequestCode.GET_BROKER_CONSUME_STATS))
        door.on_command(From("10.0.0.1"), Command(RequestCode.QUERY_CONSUMER_OFFSET))
    door.on_command(From("10.0.0.2"), Command(RequestCode.HEART_BEAT))
    assert has_beaten.wait(WAIT_SECONDS_MAX)
    may_end.set()
    door.close()


def test_changes_of_users_that_wait_for_the_file_leave_threads_for_messages():
    may_end, has_sent = threading.Event(), threading.Event()
    codes = [code for code in RequestCode if code.name.startswith("AUTH_")]
    table = dict.fromkeys(codes, in_thread(lambda ask: may_end.wait(WAIT_SECONDS_MAX) and None))
    table[RequestCode.SEND_MESSAGE] = in_thread(lambda ask: has_sent.set())
    door = Door(table, DoorClients())
    for number in range(10):
        for code in codes:
            door.on_command(From(f"10.0.0.{number}"), Command(code))
    door.on_command(From("10.0.1.1"), Command(RequestCode.SEND_MESSAGE))
    assert has_sent.wait(WAIT_SECONDS_MAX)
    may_end.set()
    door.close()


def test_every_shard_that_a_request_goes_to_hears_who_called():
    """Groups that a client without a name makes have no share of their own."""
    fan_out, found = FanOut(2), queue.Queue()
    door = Door({999: in_thread(lambda ask: found.put(fan_out.ask(range(3), lambda _: caller_here())))}, DoorClients())
    door.on_command(From("10.0.0.7"), Command(999))
    assert found.get(timeout=WAIT_SECONDS_MAX) == ["ipv4:10.0.0.7:1"] * 3
    with WorkingFor(client_of_peer("ipv4:10.0.0.8:1")):
        pass
    assert fan_out.ask(range(3), lambda _: caller_here()) == [""] * 3
    door.close()
    fan_out.close()


@pytest.mark.parametrize("has_fast_port", [True, False])
def test_a_fixed_port_has_its_fast_port_unless_that_is_off(has_fast_port):
    door = OpenDoor(Mock(), has_fast_port=has_fast_port)
    door.server = server = Mock()
    door.open(Address("127.0.0.1", 10_911))
    ports = [call.args[0].port for call in server.listen.call_args_list]
    assert ports == ([10_911, 10_909] if has_fast_port else [10_911])
