"""Queues that the door gives to members of a group, and whether they pop or pull."""

import contextlib
import json
import ssl
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from gateway.groups.asking import ask_groups
from gateway.ports.shard import StatusRow
from gateway.remoting.assignments import SILENT_SECONDS, Elsewhere, Queue, _nameservers, assigned
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.address import Address, NameServer
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK
from services.rocketmq.fastjson import loads
from services.rocketmq.remoting_server import RemotingServer
from services.settings.certificates import client_context
from store.errors import ServiceUnavailableError
from tests.gateway.remoting.requests import heartbeat
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.waiting import wait_until


def numbers(queues):
    return None if queues is None else [queue.queue_id for queue in queues]


def shares(strategy, member_count, queue_count, mode=None):
    """The queues of each member."""
    members = [f"c{number}" for number in range(member_count)]
    queues = [Queue("b", number) for number in range(queue_count)]
    mode = mode or pb.RequestMode()
    return [numbers(assigned(strategy, member, members, queues, mode)) for member in members]


@pytest.mark.parametrize(
    ("strategy", "member_count", "queue_count", "expected"),
    [
        # AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle
        ("AVG", 1, 4, [[0, 1, 2, 3]]),
        ("AVG", 3, 4, [[0, 1], [2], [3]]),
        ("AVG", 2, 4, [[0, 1], [2, 3]]),
        ("AVG", 4, 2, [[0], [1], [], []]),
        ("AVG_BY_CIRCLE", 3, 4, [[0, 3], [1], [2]]),
        ("AVG_BY_CIRCLE", 4, 2, [[0], [1], [], []]),
        ("CONSISTENT_HASH", 1, 4, [None]),
    ],
)
def test_members_that_pull_divide_the_queues_as_with_a_broker(strategy, member_count, queue_count, expected):
    assert shares(strategy, member_count, queue_count) == expected


@pytest.mark.parametrize(
    ("share", "member_count", "queue_count", "expected"),
    [
        (0, 2, 2, [[-1, -1], [-1, -1]]),  # every member polls everything
        (2, 3, 2, [[-1, -1]] * 3),
        (-1, 3, 1, [[-1]] * 3),
        (1, 3, 4, [[0, 1, 2], [2, 3], [3, 0, 1]]),  # its own queues and those of the member behind it
        (1, 4, 2, [[0], [1], [0], [1]]),  # each member gets one
    ],
)
def test_members_that_pop_share_queues_as_with_a_broker(share, member_count, queue_count, expected):
    mode = pb.RequestMode(is_pop=True, pop_share_queue_count=share)
    assert shares("AVG", member_count, queue_count, mode) == expected


def test_nobody_but_a_member_gets_queues(stack):
    queues = [Queue("b", 0)]
    assert assigned("AVG", "other", ["c"], queues, pb.RequestMode()) == ()
    assert assigned("AVG", "c", [], queues, pb.RequestMode()) is None
    assert assigned("AVG", "c", ["c"], [], pb.RequestMode()) is None


def ask(client, topic, group="assigned", client_id="c1", model="CLUSTERING", strategy="AVG"):
    fields = {"topic": topic, "consumerGroup": group, "clientId": client_id, "strategyName": strategy}
    answer = client.call(RequestCode.QUERY_ASSIGNMENT, json.dumps(fields | {"messageModel": model}).encode())
    assert answer.code == 0
    return loads(answer.body).get("messageQueueAssignments")


def set_mode(client, topic, group="assigned", mode="POP", share=0):
    body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": share}
    return client.call(RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps(body).encode()).code


@pytest.mark.parametrize("is_set", [True, False])
def test_a_mode_disabled_its_group_over_an_older_consumer_service(stack, client, monkeypatch, is_set):
    """Such a service knows no modes, and set the settings that came with one: none."""
    group, topic = f"rolled-{is_set}", f"Rolled-{is_set}"
    stack.append(topic)
    said = {"groupName": group, "retryMaxTimes": 5, "consumeEnable": True, "consumeMessageOrderly": True}
    if is_set:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert client.call(code, json.dumps(said).encode()).code == 0

    def config():
        return loads(client.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group).body)

    def ask_older(shard, method, request, deadline):
        if isinstance(request, pb.UpdateGroupRequest):
            request.ClearField("request_mode")
        return ask_groups(shard, method, request, deadline)

    before = config()
    with monkeypatch.context() as older:
        older.setattr("gateway.remoting.assignments.ask_groups", ask_older)
        assert set_mode(client, topic, group) == 0
    assert config() == before
    assert (before["consumeEnable"], before["retryMaxTimes"]) == (True, 5 if is_set else 16)


def test_a_group_pops_a_topic_once_its_mode_is_set(stack, client):
    stack.append("Modes")
    count = int(stack.topic_queue_count(client, "Modes"))
    assert ask(client, "Modes") is None  # nobody is a member
    with contextlib.closing(stack.client()) as other:
        for member, name in ((client, "c1"), (other, "c2")):
            assert member.call(RequestCode.HEART_BEAT, heartbeat(name, "assigned", topic="Modes")).code == 0
        wait_until(lambda: len(ask(client, "Modes")) == (count + 1) // 2, "both are members")
        mine, theirs = ask(client, "Modes"), ask(other, "Modes", client_id="c2")
        assert {row["mode"] for row in mine + theirs} == {"PULL"}
        assert sorted(row["messageQueue"]["queueId"] for row in mine + theirs) == list(range(count))
        assert set_mode(client, "Modes") == 0
        expected = {"messageQueue": {"brokerName": "broker-a", "queueId": -1, "topic": "Modes"}, "mode": "POP"}
        assert ask(client, "Modes") == ask(other, "Modes", client_id="c2") == [expected]
        assert ask(client, "%RETRY%assigned")[0]["mode"] == "PULL"
        assert len(ask(client, "Modes", model="BROADCASTING")) == count
        assert ask(client, "Modes", strategy="MACHINE_ROOM") in (None, [expected])
        assert set_mode(client, "Modes", mode="PULL") == 0
        assert len(ask(client, "Modes")) == (count + 1) // 2
    assert ask(client, "NoSuchTopic") is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "NoSuchTopic"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "%RETRY%assigned"}, ResponseCode.NO_PERMISSION),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
        ({"share": 1 << 40}, ResponseCode.INVALID_PARAMETER),
        ({"group": "no group!"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_mode_that_cannot_be_set_is_refused(stack, client, fields, code):
    stack.append("NoMode")
    assert set_mode(client, fields.pop("topic", "NoMode"), **fields) == code


class FakeNameServer:
    """Answers what a name server does: a route, that there is none, or nonsense."""

    def __init__(self, tls=None):
        self.answers = [(OK, b"")]
        self.asked = []
        self._server = RemotingServer("fake-nameserver", self, lambda: tls, tls_only=tls is not None)
        self.address = NameServer(self._server.listen(Address("127.0.0.1", 0)), tls is not None)
        self._server.start()

    def on_command(self, connection, command):
        self.asked.append((command.code, command.fields))
        connection.answer(command, command.answer(*self.answers[0][:1], body=self.answers[0][1]))

    def on_close(self, connection):
        pass

    def close(self):
        self._server.close()


@pytest.fixture
def nameserver():
    with contextlib.closing(FakeNameServer()) as nameserver:
        yield nameserver


def route(*rows):
    """As fastjson writes it: numbers are keys."""
    queues = [f'{{"brokerName":"{name}","perm":{perm},"readQueueNums":{count}}}' for name, perm, count in rows]
    body = f'{{"brokerDatas":[{{"brokerAddrs":{{0:"10.0.0.1:10911"}}}}],"queueDatas":[{",".join(queues)}]}}'
    return [(OK, body.encode())]


def test_a_member_that_asked_one_of_several_gateways_lost_the_queues_of_the_others(
    stack, client, nameserver, monkeypatch
):
    """RocketMQ's clients ask another broker each time."""
    monkeypatch.setattr("gateway.remoting.assignments._nameservers", lambda shard: [nameserver.address])
    stack.append("Mixed")
    count = int(stack.topic_queue_count(client, "Mixed"))
    nameserver.answers = route(("broker-a", 6, 99), ("broker-r", 6, 3), ("broker-w", 2, 5))
    assert client.call(RequestCode.HEART_BEAT, heartbeat("c1", "mixed", topic="Mixed")).code == 0
    wait_until(lambda: ask(client, "Mixed", "mixed") is not None, "it is a member")
    named = Counter(row["messageQueue"]["brokerName"] for row in ask(client, "Mixed", "mixed"))
    assert named == {"broker-a": count, "broker-r": 3}
    assert set_mode(client, "Mixed", "mixed") == 0
    popped = {
        (row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"]) for row in ask(client, "Mixed", "mixed")
    }
    assert popped == {("broker-a", -1), ("broker-r", -1)}


class Clock:
    """Each look at it is later than a route is kept, and than name servers are left alone."""

    def __init__(self):
        self.now = 0.0
        self.step = SILENT_SECONDS

    def __call__(self):
        self.now += self.step
        return self.now


def test_a_route_is_remembered_while_no_name_server_answers_it(nameserver):
    addresses = [nameserver.address]
    elsewhere = Elsewhere(lambda: addresses, Clock())
    nameserver.answers = route(("broker-a", 6, 4), ("broker-b", 4, 2))
    assert elsewhere.counts("T", {"broker-a"}) == {"broker-b": 2}
    assert nameserver.asked == [(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})]
    for code, body in ((ResponseCode.SYSTEM_BUSY, b""), (OK, b"no json"), (OK, b"[]"), (OK, b'{"queueDatas":[{}]}')):
        nameserver.answers = [(code, body)]
        assert elsewhere.counts("T", {"broker-a"}) == {"broker-b": 2}
        assert elsewhere.counts("U", set()) == {}
    addresses[:] = [NameServer(Address("127.0.0.1", free_port()))]
    assert elsewhere.counts("T", {"broker-a"}) == {"broker-b": 2}
    addresses[:] = []
    assert elsewhere.counts("T", set()) == {"broker-a": 4, "broker-b": 2}
    addresses[:] = [NameServer(Address("127.0.0.1", free_port())), nameserver.address]
    nameserver.answers = [(ResponseCode.TOPIC_NOT_EXIST, b"")]
    assert elsewhere.counts("T", set()) == {}


def test_queues_that_name_servers_over_tls_know_were_left_out(tmp_path):
    """Members of POP groups had the queues of one side only, and no line of the log said it."""
    authority = Authority(tmp_path)
    files = authority.issue("127.0.0.1", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with contextlib.closing(FakeNameServer(context)) as nameserver, capture_logs() as logs:
        nameserver.answers = route(("broker-b", 6, 2))
        said = gateway_pb.GetStatusResponse.ServiceStatus(
            service="commitlog", nameservers={str(nameserver.address): True}
        )
        shard = SimpleNamespace(whole_shard=SimpleNamespace(call=lambda *_: [StatusRow(said)]))
        elsewhere = Elsewhere(lambda: _nameservers(shard), Clock(), partial(client_context, authority.path))
        assert elsewhere.counts("T", set()) == {"broker-b": 2}
        distrusting = Elsewhere(lambda: _nameservers(shard), Clock())
        assert [distrusting.counts("T", set()) for _ in range(3)] == [{}, {}, {}]
    (line,) = [each for each in logs if each["event"] == "assignments.no_route"]
    assert "certificate verify failed" in line["error"]


def test_a_route_is_asked_for_once_in_five_seconds_and_not_remembered_without_end(nameserver, monkeypatch):
    monkeypatch.setattr("gateway.remoting.assignments.ROUTE_COUNT_MAX", 2)
    nameserver.answers = route(("broker-b", 6, 2))
    clock = Clock()
    clock.step = 0.0
    elsewhere = Elsewhere(lambda: [nameserver.address], clock)
    for topic in ("T", "T", "U", "U", "V"):
        assert elsewhere.counts(topic, set()) == {"broker-b": 2}
    assert [fields["topic"] for _, fields in nameserver.asked] == ["T", "U", "V"]
    nameserver.answers = [(ResponseCode.SYSTEM_BUSY, b"")]
    assert [elsewhere.counts(topic, set()) for topic in ("U", "T", "W")] == [{"broker-b": 2}, {}, {}]
    assert len(nameserver.asked) == 4  # W was not asked for: none answers now


def test_a_shard_that_says_nothing_of_its_name_servers_has_its_own_queues_only():
    def fail():
        raise ServiceUnavailableError("it is away")

    assert Elsewhere(fail).counts("T", set()) == {}
