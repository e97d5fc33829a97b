"""Clients that sign at a remoting door: who may send which request, for which topic and group.

`NEEDS` states what each request code must need, a second time and on purpose, as test_matrix.py does for RPCs.
"""

import contextlib
import json
import ssl
from dataclasses import replace
from unittest.mock import Mock

import pytest

from gateway.auth.access import Access, Role
from gateway.auth.audit import Audit
from gateway.auth.door_guard import RULES, DoorGuard
from gateway.remoting.door import NAME_FIELDS, Door
from gateway.remoting.door_clients import DoorClient, DoorClients
from gateway.remoting.members import client_of, facts_of
from gateway.remoting.opening import ROOMS
from gateway.remoting.pops import Pops
from gateway.remoting.topic_copy import Topic
from gateway.remoting.transactions import DoorSession, Transactions
from gateway.waiting.producers import Producers
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1.schedule_service_pb2 import WatchChecksResponse
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode as Ask
from services.rocketmq.codes import ResponseCode
from services.rocketmq.command import ONEWAY, Command
from services.rocketmq.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from services.serving.admission.shares import client_of_identity, client_of_peer
from store.format.message_id import decode_offset_msg_id
from tests.gateway.remoting.requests import (
    MAY_WAIT,
    SignedClient,
    heartbeat,
    lock_body,
    properties,
    pull_fields,
    records,
    send_fields,
    signed,
)
from tests.support.certificates import Authority
from tests.support.stack import hosted_stack
from tests.support.waiting import wait_until

OWN, OTHER = "shop-orders", "bank-transfers"
# As many characters as RocketMQ wants at least; one of them is no ASCII.
SECRET = "gehe\u00edm-1"
RIGHTS = {
    "reader": {"read": ["shop-*"], "groups": ["shop-readers", "shop-again", "shop-in-order"]},
    "writer": {"write": ["shop-*"], "groups": []},
    "admin": {"admin": ["shop-*"], "groups": ["shop-*"]},
    "mixed": {"read": ["shop-*", "bank-*"], "groups": ["shop-readers", "shop-again", "bank-readers"]},
    "stranger": {"read": ["bank-*"], "groups": ["bank-*"]},
    "banker": {"write": ["bank-*"], "groups": []},
    "auditor": {"read": ["*"], "groups": ["audit"]},
    "chief": {"admin": ["*"]},
    "idler": {},
}
# What a request needs: read, write or admin for the topic; member: read, and the group; status: admin of any topic; users:
# admin of every topic and group; some: read for any topic; group: read for any topic, and the group; consumed: the group and
# any right; known: any right.
NEEDS = {
    "write": (
        Ask.SEND_MESSAGE,
        Ask.SEND_MESSAGE_V2,
        Ask.SEND_BATCH_MESSAGE,
        Ask.SEND_REPLY_MESSAGE,
        Ask.SEND_REPLY_MESSAGE_V2,
    ),
    "some_write": (Ask.END_TRANSACTION,),
    "recall": (Ask.RECALL_MESSAGE,),
    "member": (
        *(Ask.PULL_MESSAGE, Ask.LITE_PULL_MESSAGE, Ask.QUERY_CONSUMER_OFFSET, Ask.UPDATE_CONSUMER_OFFSET),
        *(Ask.GET_CONSUME_STATS, Ask.QUERY_CONSUME_TIME_SPAN, Ask.QUERY_SUBSCRIPTION_BY_CONSUMER),
        *(Ask.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Ask.QUERY_CONSUME_QUEUE),
        *(Ask.LOCK_BATCH_MQ, Ask.UNLOCK_BATCH_MQ, Ask.CHECK_CLIENT_CONFIG),
        *(Ask.POP_MESSAGE, Ask.ACK_MESSAGE, Ask.BATCH_ACK_MESSAGE, Ask.CHANGE_MESSAGE_INVISIBLETIME),
        *(Ask.PEEK_MESSAGE, Ask.NOTIFICATION, Ask.POLLING_INFO, Ask.QUERY_ASSIGNMENT),
        Ask.GET_LITE_CLIENT_INFO,
    ),
    "read": (
        *(Ask.QUERY_MESSAGE, Ask.SEARCH_OFFSET_BY_TIMESTAMP, Ask.GET_MAX_OFFSET, Ask.GET_MIN_OFFSET),
        *(
            Ask.GET_EARLIEST_MSG_STORETIME,
            Ask.GET_TOPIC_CONFIG,
            Ask.GET_TOPIC_STATS_INFO,
            Ask.QUERY_TOPIC_CONSUME_BY_WHO,
        ),
        *(Ask.GET_PARENT_TOPIC_INFO, Ask.GET_LITE_TOPIC_INFO),
    ),
    "group": (
        *(Ask.CONSUMER_SEND_MSG_BACK, Ask.GET_CONSUMER_LIST_BY_GROUP, Ask.GET_SUBSCRIPTIONGROUP_CONFIG),
        *(Ask.GET_CONSUMER_CONNECTION_LIST, Ask.QUERY_TOPICS_BY_CONSUMER, Ask.GET_LITE_GROUP_INFO),
    ),
    "some": (
        *(Ask.GET_ALL_TOPIC_CONFIG, Ask.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        Ask.VIEW_MESSAGE_BY_ID,
    ),
    "consumed": (Ask.HEART_BEAT,),
    "left": (Ask.UNREGISTER_CLIENT,),
    "admin": (Ask.UPDATE_AND_CREATE_TOPIC, Ask.UPDATE_AND_CREATE_TOPIC_LIST, Ask.DELETE_TOPIC_IN_BROKER),
    "admin_group": (Ask.INVOKE_BROKER_TO_RESET_OFFSET, Ask.CLONE_GROUP_OFFSET),
    "status_group": (
        *(
            Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            Ask.DELETE_SUBSCRIPTIONGROUP,
            Ask.SET_MESSAGE_REQUEST_MODE,
            Ask.TRIGGER_LITE_DISPATCH,
        ),
        *(Ask.GET_CONSUMER_RUNNING_INFO, Ask.CONSUME_MESSAGE_DIRECTLY, Ask.VIEW_BROKER_STATS_DATA),
    ),
    "status": (
        *(Ask.GET_BROKER_CONSUME_STATS, Ask.GET_BROKER_CONFIG, Ask.UPDATE_BROKER_CONFIG, Ask.GET_BROKER_RUNTIME_INFO),
        *(
            Ask.GET_BROKER_HA_STATUS,
            Ask.GET_PRODUCER_CONNECTION_LIST,
            Ask.GET_ALL_PRODUCER_INFO,
        ),
        *(Ask.CLEAN_EXPIRED_CONSUMEQUEUE, Ask.CLEAN_UNUSED_TOPIC, Ask.DELETE_EXPIRED_COMMITLOG),
        Ask.GET_BROKER_LITE_INFO,
    ),
    "users": tuple(code for code in Ask if code.name.startswith("AUTH_")),
}
# By need: which clients may, for OWN and the group shop-readers.
MAY = {
    "write": {"writer", "admin", "chief"},
    "recall": {"writer", "admin", "chief"},
    "some_write": {"writer", "admin", "chief", "banker"},
    "member": {"reader", "admin", "mixed", "chief"},
    "read": {"reader", "admin", "mixed", "auditor", "chief"},
    "group": {"reader", "admin", "mixed", "chief"},
    "some": {"reader", "admin", "mixed", "stranger", "auditor", "chief"},
    "consumed": {"reader", "admin", "mixed", "chief"},
    "left": {"reader", "admin", "mixed", "chief"},
    "admin": {"admin", "chief"},
    "admin_group": {"admin", "chief"},
    "status_group": {"admin", "chief"},
    "status": {"admin", "chief"},
    "users": {"chief"},
}


def key_of(client):
    return f"{client}-key"


def access_text():
    parts = []
    for name, rights in RIGHTS.items():
        parts.append(f'[[clients]]\nname = "{name}"\naccess_keys = {{{key_of(name)} = "{SECRET}"}}')
        parts += [f"{field} = {json.dumps(patterns)}" for field, patterns in rights.items()]
    return "\n".join(parts) + "\n"


class SecuredDoor:
    """A store whose clients sign."""

    def __init__(self, stack):
        self.stack = stack
        self.address = stack.addresses["remoting"]
        with self.client("chief") as chief:
            for topic in (OWN, OTHER):
                made = chief.call(
                    Ask.UPDATE_AND_CREATE_TOPIC,
                    topic=topic,
                    readQueueNums=2,
                    writeQueueNums=2,
                    perm=6,
                    topicFilterType="SINGLE_TAG",
                )
                assert made.code == 0, made.remark
            self.ids = {topic: self.sent(chief, topic).fields["msgId"] for topic in (OWN, OTHER)}
            self.wait_until_pulled(chief, OWN)
            self.wait_until_pulled(chief, OTHER)

    @contextlib.contextmanager
    def client(self, name, secret=SECRET):
        with contextlib.closing(SignedClient(self.address, key_of(name), secret)) as client:
            if name is None:
                client.signs_with = None
            yield client

    def sent(self, client, topic, body=b"x", **more):
        answer = client.call(Ask.SEND_MESSAGE_V2, body, **send_fields(topic, queueId=0, **more))
        assert answer.code == 0, answer.remark
        return answer

    def wait_until_pulled(self, client, topic):
        wait_until(lambda: client.call(Ask.PULL_MESSAGE, **pull_fields(topic)).code == 0, "the queue is built")

    def fields_and_body(self, code):
        """A request for OWN and the group shop-readers."""
        offset = decode_offset_msg_id(self.ids[OWN])[1]
        body = b""
        fields = {
            "topic": OWN,
            "parentTopic": OWN,
            "liteTopic": "a",
            "maxCount": 1,
            "topK": 1,
            "consumerGroup": "shop-readers",
            "group": "shop-readers",
            "groupName": "shop-readers",
            "queueId": 0,
            "offset": offset,
            "timestamp": 0,
            "clientID": f"client-{int(code)}",
            "clientId": f"client-{int(code)}",
            "commitOffset": 0,
            "delayLevel": 0,
            "maxNum": 1,
            "key": "k1",
            "beginTimestamp": 0,
            "endTimestamp": 1 << 50,
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "msgId": self.ids[OWN],
            "statsName": "GROUP_GET_NUMS",
            "statsKey": f"{OWN}@shop-readers",
            "producerGroup": "pg",
            "srcGroup": "shop-readers",
            "destGroup": "shop-readers",
            "index": 0,
            "count": 1,
            "commitOrRollback": 0,
            "commitLogOffset": offset,
            "tranStateTableOffset": 0,
            "recallHandle": "none",
            "maxMsgNums": 1,
            "invisibleTime": 1,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "extraInfo": "none",
        }
        if code in NEEDS["write"]:
            is_old = code in (Ask.SEND_MESSAGE, Ask.SEND_REPLY_MESSAGE)
            fields, body = send_fields(OWN, Ask.SEND_MESSAGE if is_old else Ask.SEND_MESSAGE_V2, queueId=0), b"x"
        elif code in (Ask.PULL_MESSAGE, Ask.LITE_PULL_MESSAGE):
            fields = pull_fields(OWN, consumerGroup="shop-readers")
        elif code == Ask.HEART_BEAT:
            fields, body = {}, heartbeat(fields["clientID"], "shop-readers", topic=OWN)
        elif code in (Ask.LOCK_BATCH_MQ, Ask.UNLOCK_BATCH_MQ):
            fields, body = {}, lock_body(fields["clientID"], "shop-readers", OWN, 0)
        elif code == Ask.CHECK_CLIENT_CONFIG:
            sql = {"topic": OWN, "subString": "a = 1", "expressionType": "SQL92"}
            fields, body = {}, json.dumps({"group": "shop-readers", "subscriptionData": sql}).encode()
        elif code == Ask.QUERY_ASSIGNMENT:
            said = {"clientId": fields["clientID"], "strategyName": "AVG", "messageModel": "CLUSTERING"}
            fields, body = {}, json.dumps({"topic": OWN, "consumerGroup": "shop-readers"} | said).encode()
        elif code == Ask.SET_MESSAGE_REQUEST_MODE:
            said = {"topic": OWN, "consumerGroup": "shop-readers", "mode": "PULL", "popShareQueueNum": 0}
            fields, body = {}, json.dumps(said).encode()
        elif code == Ask.BATCH_ACK_MESSAGE:
            row = {"c": "shop-readers", "t": OWN, "r": "1", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0, "b": "AQ=="}
            fields, body = {}, json.dumps({"brokerName": "broker-a", "acks": [row]}).encode()
        elif code == Ask.UPDATE_AND_CREATE_TOPIC_LIST:
            row = {"topicName": OWN, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
            fields, body = {}, json.dumps({"topicConfigList": [row]}).encode()
        elif code == Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            fields, body = {}, json.dumps({"groupName": "shop-readers"}).encode()
        elif code == Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
            fields, body = {}, json.dumps({"groupConfigList": [{"groupName": "shop-readers"}]}).encode()
        return fields, body


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    access_file = tmp_path_factory.mktemp("access") / "access.toml"
    access_file.write_text(access_text())
    settings = {"REPUT_GATEWAY_AUTH": "on", "REPUT_GATEWAY_ACCESS_FILE": str(access_file)}
    with hosted_stack(tmp_path_factory.mktemp("store"), settings=settings, remoting_port=0) as stack:
        yield SecuredDoor(stack)


def codes_that_are_served():
    class Anything:
        """Stands for a DoorShard whose handlers are not called."""

        def __getattr__(self, name):
            return Anything()

        def append(self, hear):
            pass

        def __call__(self, *_):
            return "x"

        cluster_name = broker_name = "x"

    return {code for handlers in ROOMS for code in handlers(Anything())}


def test_every_code_that_is_served_has_a_rule_and_a_line_in_the_table():
    served = codes_that_are_served()
    assert served == set(RULES)
    assert sorted(code for codes in NEEDS.values() for code in codes) == sorted(served)


def test_requests_that_one_key_signs_have_one_share_whatever_their_connections():
    """Each connection had its own: a tenth of the groups and members of a shard, and as many waits as one client."""
    access = {"shop-key": Access("shop", {Role.READ: ["*"]}), "bank-key": Access("bank", {Role.READ: ["*"]})}
    guard = DoorGuard(Mock(access_by_signature=lambda key, *_: access[key]), Mock(), Mock())
    asked = []
    for sign_in in (guard, None):
        door = Door({Ask.POLLING_INFO: asked.append}, DoorClients(), sign_in=sign_in)
        for key, host in (("shop-key", "10.0.0.1"), ("shop-key", "10.0.0.2"), ("bank-key", "10.0.0.1")):
            command = Command(Ask.POLLING_INFO, {"topic": OWN, "consumerGroup": "g", ACCESS_KEY: key})
            door.on_command(Mock(peer=Address(host, 5)), command)
        door.close()
    identities = [client_of_identity(name) for name in ("shop", "shop", "bank")]
    peers = [client_of_peer(f"ipv4:10.0.0.{number}:5") for number in (1, 2, 1)]
    assert [each.caller for each in asked] == identities + peers
    topic, fields = Topic(topic=OWN, read_queue_count=1), {"queueId": "0", "maxMsgNums": "1", "invisibleTime": "1"}
    for each in asked:  # what other services divide by it
        each.command = Command(Ask.POP_MESSAGE, each.command.fields | fields, heartbeat("c", "g"))
        assert Pops(Mock())._question(each, topic).caller == each.caller.name
        member, _ = client_of(each, json.loads(each.command.body), None)
        assert [fact.caller for fact in facts_of(member)] == [each.caller.name]


def test_no_field_that_a_rule_looks_at_may_be_of_any_length():
    assert {field for rule in RULES.values() for field in (rule.topic, rule.group) if field} <= NAME_FIELDS.keys()


@pytest.mark.parametrize("code", sorted(RULES), ids=lambda code: code.name)
def test_no_code_is_open_and_each_client_may_do_what_its_rights_say(door, code):
    need = next(need for need, codes in NEEDS.items() if code in codes)
    fields, body = door.fields_and_body(code)
    with door.client(None) as unsigned, door.client("chief", "another-secret") as forger:
        for client, why in ((unsigned, "not signed"), (forger, "has not made this signature")):
            answer = client.call(code, body, **fields)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert why in answer.remark
    for name in RIGHTS:
        if name in MAY[need]:
            continue  # below: some of them change what the others ask for
        with door.client(name) as client:
            answer = client.call(code, body, **fields)
        assert answer.code == ResponseCode.NO_PERMISSION, (name, answer.remark)
        assert f"{name} may not" in answer.remark
    if code not in (Ask.DELETE_TOPIC_IN_BROKER, Ask.DELETE_SUBSCRIPTIONGROUP):
        # Each with an id of its own: an id belongs to the identity that used it first.
        for name in sorted(MAY[need]):
            own = {field: f"{name}-{value}" if "lient" in field else value for field, value in fields.items()}
            with door.client(name) as client:
                answer = client.call(code, body.replace(b"client-", f"{name}-".encode()), **own)
            assert answer.code != ResponseCode.NO_PERMISSION, (name, answer.remark)


def test_an_admin_of_some_topics_was_told_the_figures_of_all(door):
    hidden = (
        ("TOPIC_PUT_NUMS", OTHER),
        ("TOPIC_PUT_SIZE", "none"),
        ("GROUP_GET_NUMS", f"{OTHER}@shop-readers"),
        ("GROUP_GET_SIZE", f"{OWN}@bank-readers"),
        ("SNDBCK_PUT_NUMS", "bank-readers"),
    )
    with door.client("admin") as admin, door.client("chief") as chief:
        for name, key in hidden:
            answer = admin.call(Ask.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            assert answer.code == ResponseCode.NO_PERMISSION, (name, key, answer.remark)
            answer = chief.call(Ask.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            assert answer.code != ResponseCode.NO_PERMISSION, (name, key, answer.remark)
        assert admin.call(Ask.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=OWN).code == 0


def test_a_user_that_mqadmin_makes_may_do_what_its_policies_say_at_once(door):
    """As mqadmin's createUser, createAcl, updateUser, deleteAcl and deleteUser send them."""
    acl = {
        "subject": "User:alice",
        "policies": [
            {
                "entries": [
                    {"resource": resource, "actions": ["Pub", "Sub"], "sourceIps": [], "decision": "ALLOW"}
                    for resource in (f"Topic:{OWN}", "Group:alice-*")
                ]
            }
        ],
    }

    def code_of(ask, secret="alice123", **fields):
        with contextlib.closing(SignedClient(door.address, "alice", secret)) as alice:
            return alice.call(ask, **fields).code

    with door.client("chief") as chief:

        def done(code, document=None, **fields):
            answer = chief.call(code, b"" if document is None else json.dumps(document).encode(), **fields)
            assert answer.code == 0, answer.remark
            return json.loads(answer.body) if answer.body else None

        user = {"username": "alice", "password": "alice123", "userType": "Normal"}
        for _ in range(2):  # once for each shard of a cluster
            done(Ask.AUTH_CREATE_USER, user, username="alice")
        assert chief.call(Ask.AUTH_CREATE_USER, b'{"password": "other"}', username="alice").code != 0
        assert code_of(Ask.GET_MAX_OFFSET, topic=OWN, queueId=0) == ResponseCode.NO_PERMISSION
        done(Ask.AUTH_CREATE_ACL, acl, subject="User:alice")
        assert code_of(Ask.GET_MAX_OFFSET, topic=OWN, queueId=0) == 0
        assert code_of(Ask.GET_MAX_OFFSET, topic=OTHER, queueId=0) == ResponseCode.NO_PERMISSION
        assert code_of(Ask.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="shop-readers") == ResponseCode.NO_PERMISSION
        assert done(Ask.AUTH_GET_USER, username="alice") == {
            "username": "alice",
            "userType": "Normal",
            "userStatus": "enable",
        }
        shown = done(Ask.AUTH_GET_ACL, subject="User:alice")["policies"][0]["entries"]
        assert {each["resource"]: each["actions"] for each in shown} == {
            f"Topic:{OWN}": ["Pub", "Sub"],
            "Group:alice-*": ["Sub"],
        }
        assert [each["username"] for each in done(Ask.AUTH_LIST_USER, filter="ali")] == ["alice"]
        assert [each["subject"] for each in done(Ask.AUTH_LIST_ACL, subjectFilter="ali", resourceFilter=OWN)] == [
            "User:alice"
        ]
        done(Ask.AUTH_UPDATE_USER, {"password": "changed1"}, username="alice")
        assert code_of(Ask.GET_MAX_OFFSET, topic=OWN, queueId=0) == ResponseCode.NO_PERMISSION
        assert code_of(Ask.GET_MAX_OFFSET, "changed1", topic=OWN, queueId=0) == 0
        done(Ask.AUTH_DELETE_ACL, subject="User:alice", resource=f"Topic:{OWN}")
        assert code_of(Ask.GET_MAX_OFFSET, "changed1", topic=OWN, queueId=0) == ResponseCode.NO_PERMISSION
        done(Ask.AUTH_DELETE_USER, username="alice")
        assert done(Ask.AUTH_GET_USER, username="alice") is None
        assert chief.call(Ask.AUTH_GET_ACL, subject="User:alice").code != 0
        numbers = chief.call(Ask.AUTH_UPDATE_USER, b'{"password": 12345678}', username="alice")
        assert "the password is not a text" in numbers.remark
        assert "admin" in str(done(Ask.AUTH_LIST_USER))  # the others are there


def told_of(access, code, fields, *, is_private):
    """The outcome of a request, and what the audit log has of it."""
    lines, answers = [], []
    audit = Audit(lambda event, **said: lines.append((event, said.get("user"))), lambda: 0.0)
    sign_in = Mock(access_by_signature=lambda *_: access)
    done = Door({code: lambda ask: ask.answer()}, DoorClients(), sign_in=DoorGuard(sign_in, audit, Mock()))
    connection = Mock(peer=Address("10.0.0.1", 5), is_private=is_private)
    connection.answer = lambda _, answer: answers.append(answer)
    done.on_command(connection, Command(code, {ACCESS_KEY: "chief", **fields}))
    done.close()
    return answers[0].code, lines


CHIEF, SOME_ADMIN = Access("chief", {Role.ADMIN: ["*"]}, None), Access("some", {Role.ADMIN: ["shop-*"]}, None)
CHANGES = {
    **dict.fromkeys((Ask.AUTH_CREATE_USER, Ask.AUTH_UPDATE_USER, Ask.AUTH_DELETE_USER), "username"),
    **dict.fromkeys((Ask.AUTH_CREATE_ACL, Ask.AUTH_UPDATE_ACL, Ask.AUTH_DELETE_ACL), "subject"),
}


@pytest.mark.parametrize("code", [code for code in Ask if code.name.startswith("AUTH_")])
def test_users_are_changed_only_where_nobody_on_a_network_reads_the_request(code):
    """A signed request that was read on its way could be sent again as `createUser`."""
    fields = {CHANGES.get(code, "username"): "alice"}
    assert told_of(CHIEF, code, fields, is_private=True)[0] == 0
    may_be_read = told_of(CHIEF, code, fields, is_private=False)
    if code in CHANGES:
        assert may_be_read == (ResponseCode.NO_PERMISSION, [("audit.denied", None)])
    else:
        assert may_be_read[0] == 0


@pytest.mark.parametrize("code", CHANGES)
def test_the_audit_log_names_the_user_and_tells_no_refused_change_as_allowed(code):
    fields = {CHANGES[code]: "User:alice"}
    assert told_of(CHIEF, code, fields, is_private=True) == (0, [("audit.admin", "User:alice")])
    refused = told_of(SOME_ADMIN, code, fields, is_private=True)
    assert refused == (ResponseCode.NO_PERMISSION, [("audit.denied", None)])


@pytest.mark.parametrize("command_flag", [0, ONEWAY])
def test_a_refused_send_leaves_nothing_on_disk(door, command_flag):
    with door.client("chief") as chief, door.client("chief", "wrong-secret") as forger:
        ends = [chief.call(Ask.GET_MAX_OFFSET, topic=OWN, queueId=1).fields["offset"]]
        forger.send(forger.request(Ask.SEND_MESSAGE_V2, b"x", command_flag, **send_fields(OWN, queueId=1)))
        answer = forger.receive() if not command_flag else forger.call(Ask.GET_MAX_OFFSET, topic=OWN, queueId=1)
        assert answer.code == ResponseCode.NO_PERMISSION
        ends.append(chief.call(Ask.GET_MAX_OFFSET, topic=OWN, queueId=1).fields["offset"])
    assert ends[0] == ends[1]


def test_a_signature_over_another_body_or_field_is_refused(door):
    with door.client("writer") as client:
        right = client.request(Ask.SEND_MESSAGE_V2, b"right", **send_fields(OWN))
        for wrong in (
            replace(right, body=b"wrong"),
            replace(right, fields={**right.fields, "e": "0"}),
            replace(right, fields={**right.fields, "more": "field"}),
            replace(right, fields={name: value for name, value in right.fields.items() if name != "j"}),
            replace(right, fields={**right.fields, SECURITY_TOKEN: "token"}),
            replace(right, fields={**right.fields, SIGNATURE: right.fields[SIGNATURE].lower()}),
            replace(right, fields={**right.fields, SIGNATURE: ""}),
            replace(right, fields={name: value for name, value in right.fields.items() if name != SIGNATURE}),
            replace(right, fields={name: value for name, value in right.fields.items() if name != ACCESS_KEY}),
            replace(right, fields={**right.fields, ACCESS_KEY: key_of("chief")}),
            replace(right, fields={**right.fields, ACCESS_KEY: "\u7b80\ufffd" * 9, SIGNATURE: "\u00e9" * 28}),
        ):
            assert client.ask(wrong).code == ResponseCode.NO_PERMISSION
        assert client.ask(replace(right, opaque=99)).code == 0  # as RocketMQ's: the opaque is not signed


def test_a_key_that_is_not_known_is_answered_as_a_wrong_secret(door):
    with door.client("nobody") as unknown, door.client("chief", "wrong-secret") as wrong:
        remarks = {client.call(Ask.GET_MAX_OFFSET, topic=OWN, queueId=0).remark for client in (unknown, wrong)}
    assert len(remarks) == 1


def test_a_code_that_is_not_served_needs_a_signature_too(door):
    with door.client(None) as unsigned, door.client("idler") as idler:
        assert unsigned.call(200_070).code == ResponseCode.NO_PERMISSION
        assert idler.call(200_070).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_each_request_of_a_connection_has_the_rights_of_its_own_signature(door):
    with door.client("writer") as client:
        door.sent(client, OWN)
        for name, code in (("stranger", 16), ("reader", 0), ("writer", 16), ("chief", 0)):
            client.signs_with = key_of(name), SECRET
            assert client.call(Ask.GET_MIN_OFFSET, topic=OWN, queueId=0).code == code
        client.signs_with = None
        assert client.call(Ask.GET_MIN_OFFSET, topic=OWN, queueId=0).code == ResponseCode.NO_PERMISSION


def members(door, group):
    with door.client("chief") as chief:
        answer = chief.call(Ask.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    return json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []


def test_a_heartbeat_with_one_group_or_topic_that_is_not_allowed_is_refused_as_a_whole(door):
    for body in (
        heartbeat("half-1", "shop-readers", "bank-readers", topic=OWN),
        heartbeat("half-1", "shop-readers", topic=OTHER),
        heartbeat("half-1", "shop-readers", topic="%RETRY%bank-readers"),
    ):
        with door.client("reader") as reader:
            answer = reader.call(Ask.HEART_BEAT, body)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "reader may not" in answer.remark
            assert "half-1" not in members(door, "shop-readers") + members(door, "bank-readers")
            assert reader.call(Ask.HEART_BEAT, heartbeat("half-1", "shop-readers", topic=OWN)).code == 0
            assert "half-1" in members(door, "shop-readers")
        wait_until(lambda: "half-1" not in members(door, "shop-readers"), "the end of its connection is seen")


def test_what_another_identity_said_over_a_connection_is_not_taken_over(door):
    with door.client("mixed") as client:
        assert client.call(Ask.HEART_BEAT, heartbeat("shared", "bank-readers", topic=OTHER)).code == 0
        client.signs_with = key_of("stranger"), SECRET
        for code, body, fields in (
            (Ask.HEART_BEAT, heartbeat("shared", "bank-readers", topic=OTHER, withoutSub=True), {}),
            (Ask.UNREGISTER_CLIENT, b"", {"clientID": "shared", "consumerGroup": "bank-readers"}),
            (Ask.LOCK_BATCH_MQ, lock_body("shared", "bank-readers", OTHER, 0), {}),
            (Ask.UNLOCK_BATCH_MQ, lock_body("shared", "bank-readers", OTHER, 0), {}),
        ):
            answer = client.call(code, body, **fields)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "in use by another client" in answer.remark


def test_a_client_id_is_free_once_its_client_has_left_all_groups(door):
    with door.client("mixed") as client:
        body = heartbeat("leaves", "bank-readers", topic=OTHER, producerDataSet=[])
        assert client.call(Ask.HEART_BEAT, body).code == 0
        assert client.call(Ask.UNREGISTER_CLIENT, clientID="leaves", consumerGroup="bank-readers").code == 0
        client.signs_with = key_of("stranger"), SECRET
        assert client.call(Ask.HEART_BEAT, body).code == 0


def test_the_retry_topic_of_a_group_that_is_named_is_its_members_and_nobody_elses(door):
    retry = "%RETRY%shop-again"
    with door.client("reader") as reader, door.client("mixed") as mixed:
        assert reader.call(Ask.HEART_BEAT, heartbeat("member", "shop-again", topic=retry)).code == 0
        sent = reader.call(
            Ask.SEND_MESSAGE_V2,
            b"again",
            **send_fields(retry, producerGroup="CLIENT_INNER_PRODUCER", queueId=0, maxReconsumeTimes=3),
        )
        assert sent.code == 0, sent.remark
        pull = pull_fields(retry, consumerGroup="shop-again", sysFlag=4 | MAY_WAIT, suspendTimeoutMillis=10_000)
        pulled = mixed.call(Ask.PULL_MESSAGE, **pull)
        assert pulled.code == 0, (pulled, sent)
        (record,) = records(pulled.body)
        assert record.body == b"again"
        for code, fields in (
            (Ask.GET_MAX_OFFSET, {"topic": retry, "queueId": 0}),
            (
                Ask.UPDATE_CONSUMER_OFFSET,
                {"topic": retry, "queueId": 0, "consumerGroup": "shop-again", "commitOffset": 0},
            ),
            (Ask.QUERY_CONSUMER_OFFSET, {"topic": retry, "queueId": 0, "consumerGroup": "shop-again"}),
        ):
            assert reader.call(code, **fields).code == 0
    for name in ("stranger", "writer", "banker"):
        with door.client(name) as client:
            assert client.call(Ask.PULL_MESSAGE, **pull).code == ResponseCode.NO_PERMISSION
            assert client.call(Ask.SEND_MESSAGE_V2, b"x", **send_fields(retry)).code == ResponseCode.NO_PERMISSION
            assert client.call(Ask.SEND_MESSAGE_V2, b"x", **send_fields("%DLQ%shop-again")).code == 16


def test_a_client_that_may_read_everything_appends_nothing_by_way_of_retry_topics(door):
    """What lies in a retry topic, of members that pull or that pop, is delivered as a message of the group's topics."""
    foreign = (
        "%RETRY%bank-consumers",
        f"%RETRY%bank-poppers_{OTHER}",
        f"%RETRY%audit_{OTHER}",
        "%RETRY%audit+x",
        "%RETRY%",
    )
    with door.client("auditor") as auditor, door.client("chief") as chief:
        for topic in foreign:
            for code in (Ask.SEND_MESSAGE, Ask.SEND_MESSAGE_V2, Ask.SEND_BATCH_MESSAGE):
                for times in (0, 17):  # more than its group has: a dead letter
                    fields = send_fields(topic, code, queueId=0, reconsumeTimes=times, maxReconsumeTimes=16)
                    answer = auditor.call(code, b"forged", **fields)
                    assert answer.code == ResponseCode.NO_PERMISSION, (topic, answer)
                    assert "auditor may not write" in answer.remark
        made = json.loads(chief.call(Ask.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
        assert not {*foreign, "%DLQ%bank-consumers"} & made.keys()
        own = auditor.call(
            Ask.SEND_MESSAGE_V2, b"again", **send_fields("%RETRY%audit", queueId=0, maxReconsumeTimes=16)
        )
        assert own.code == 0, own.remark
        given = chief.call(Ask.SEND_MESSAGE_V2, b"given", **send_fields("%RETRY%bank-consumers", queueId=0))
        assert given.code == 0, given.remark


def test_a_reader_cannot_make_its_group_an_ordered_one_by_a_pop(door, caplog):
    """It was refused the settings of the group (200), and set them by a pop, for all members and for ever."""
    group = "shop-in-order"
    fields = {"consumerGroup": group, "topic": OWN, "queueId": -1, "maxMsgNums": 1, "invisibleTime": 1_000}
    fields |= {"pollTime": 0, "bornTime": 0, "initMode": 0, "exp": "*", "expType": "TAG"}
    with door.client("reader") as reader, door.client("admin") as admin, door.client("chief") as chief:

        def is_ordered():
            answer = chief.call(Ask.GET_SUBSCRIPTIONGROUP_CONFIG, group=group)
            return json.loads(answer.body)["consumeMessageOrderly"]

        def admins():
            return [each for each in caplog.messages if "audit.admin" in each and group in each]

        for _ in range(2):  # of a group that is not there, and of one that is
            refused = reader.call(Ask.POP_MESSAGE, **fields, order="true")
            assert refused.code == ResponseCode.NO_PERMISSION
            assert f"reader may not admin consumer group '{group}'" in refused.remark
            assert not is_ordered()
            assert reader.call(Ask.POP_MESSAGE, **fields, order="false").code != ResponseCode.NO_PERMISSION
        assert admins() == []
        assert admin.call(Ask.POP_MESSAGE, **fields, order="true").code != ResponseCode.NO_PERMISSION
        assert (is_ordered(), len(admins())) == (True, 1)
        assert reader.call(Ask.POP_MESSAGE, **fields, order="true").code != ResponseCode.NO_PERMISSION


def test_a_message_of_another_topic_is_as_one_that_is_absent(door):
    own, other = (decode_offset_msg_id(door.ids[topic])[1] for topic in (OWN, OTHER))
    with door.client("reader") as reader:
        assert reader.call(Ask.VIEW_MESSAGE_BY_ID, offset=own).code == 0
        hidden = reader.call(Ask.VIEW_MESSAGE_BY_ID, offset=other)
        absent = reader.call(Ask.VIEW_MESSAGE_BY_ID, offset=own + 1)
        assert hidden.code == absent.code == ResponseCode.SYSTEM_ERROR
        assert hidden.remark.replace(str(other), "N") == absent.remark.replace(str(own + 1), "N")
        back = reader.call(Ask.CONSUMER_SEND_MSG_BACK, group="shop-readers", offset=other, delayLevel=0)
        assert (back.code, back.remark) == (ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {other}")


def test_lists_have_only_what_a_client_may_see(door):
    with door.client("stranger") as stranger, door.client("mixed") as mixed:
        assert mixed.call(Ask.HEART_BEAT, heartbeat("seen", "bank-readers", topic=OTHER)).code == 0
        assert mixed.call(Ask.HEART_BEAT, heartbeat("seen", "bank-readers", "shop-readers", topic=OWN)).code == 0
        topics = json.loads(stranger.call(Ask.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
        assert OTHER in topics
        assert OWN not in topics
        groups = json.loads(stranger.call(Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
        assert "shop-readers" not in groups
        seen = stranger.call(Ask.GET_CONSUMER_CONNECTION_LIST, consumerGroup="bank-readers")
        assert OWN not in seen.body.decode()
        with door.client("chief") as chief:
            assert OWN in chief.call(Ask.GET_CONSUMER_CONNECTION_LIST, consumerGroup="bank-readers").body.decode()
        assert mixed.call(Ask.HEART_BEAT, heartbeat("seen", "shop-again", "bank-readers", topic=OTHER)).code == 0
        readers = json.loads(stranger.call(Ask.QUERY_TOPIC_CONSUME_BY_WHO, topic=OTHER).body)["groupList"]
        assert ("bank-readers" in readers, "shop-again" in readers) == (True, False)


def test_a_member_is_not_asked_for_a_caller_that_may_not_see_its_topics(door):
    """It was asked, and its answer named the topics and what it wants of them."""
    group, code = "shop-readers", Ask.GET_CONSUMER_RUNNING_INFO
    fields = {"consumerGroup": group, "clientId": "member@1", "jstackEnable": "false"}
    with door.client("mixed") as member, door.client("admin") as admin:
        assert member.call(Ask.HEART_BEAT, heartbeat("member@1", group, topic=OTHER)).code == 0
        refused = admin.call(code, **fields)
        assert (refused.code, OTHER in refused.remark) == (ResponseCode.NO_PERMISSION, True)
        assert member.call(Ask.HEART_BEAT, heartbeat("member@1", group, topic=OWN, version=2)).code == 0
        admin.send(admin.request(code, **fields))
        while (asked := member.next_told()).code != code:
            pass
        member.send(asked.answer(0, "", {}, b"what it tells"))
        assert admin.receive().body == b"what it tells"


def test_the_stacks_of_a_member_went_to_a_caller_that_sees_some_topics_only(door):
    """GetConsumerRunningInfo refused them, and the door passed them on: stacks name anything."""
    group, code = "shop-readers", Ask.GET_CONSUMER_RUNNING_INFO
    fields = {"consumerGroup": group, "clientId": "member@1", "jstackEnable": "true"}
    with door.client("mixed") as member, door.client("admin") as admin, door.client("chief") as chief:
        assert member.call(Ask.HEART_BEAT, heartbeat("member@1", group, topic=OWN)).code == 0
        refused = admin.call(code, **fields)
        assert (refused.code, "ask without them" in refused.remark) == (ResponseCode.NO_PERMISSION, True)
        chief.send(chief.request(code, **fields))
        while (asked := member.next_told()).code != code:
            pass
        assert asked.fields["jstackEnable"] == "true"
        member.send(asked.answer(0, "", {}, b"its stacks"))
        assert chief.receive().body == b"its stacks"


def test_a_verdict_is_taken_from_a_client_that_may_send_to_the_topic(door):
    with door.client("banker") as other, door.client("writer") as own:
        half = properties(TRAN_MSG="true", PGROUP="tx", UNIQ_KEY="7F0000010001AAAABBBBCCCC00000009")
        sent = door.sent(own, OWN, b"secret", producerGroup="tx", properties=half, sysFlag=4)
        ends = {
            "producerGroup": "tx",
            "tranStateTableOffset": sent.fields["queueOffset"],
            "commitLogOffset": decode_offset_msg_id(sent.fields["msgId"])[1],
            "commitOrRollback": 12,
            "fromTransactionCheck": "false",
            "msgId": "",
        }
        refused = other.call(Ask.END_TRANSACTION, **ends)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        assert own.call(Ask.END_TRANSACTION, **ends).code == 0


def test_a_check_of_a_transaction_goes_to_producers_that_may_send_to_its_topic():
    message = StoredMessage(topic=OWN, properties={"PGROUP": "tx"}, born_host="10.0.0.1:1", store_host="10.0.0.1:1")
    message.born_time.FromMilliseconds(1)
    message.store_time.FromMilliseconds(1)
    check = WatchChecksResponse.Check(message=message)
    for access, is_asked in (
        (Access("own", {Role.WRITE: ["shop-*"]}), True),
        (Access("other", {Role.WRITE: ["bank-*"], Role.READ: ["*"]}), False),
        (None, True),
    ):
        shard, connection = Mock(broker_name="broker-a"), Mock(is_closed=False)
        shard.clients.of.return_value = DoorClient(connection, "id", "JAVA", 513, frozenset({"tx"}), {}, access)
        assert DoorSession(shard, connection).ask(check) is is_asked
        assert connection.tell.called is is_asked


def test_a_client_that_may_send_nothing_used_up_the_checks_of_a_producer_group():
    """Its heartbeat named the group, so it was a producer that can be asked; each check that it did not get was counted."""
    for access, names in (
        (Access("reader", {Role.READ: ["*"]}), []),
        (Access("own", {Role.WRITE: ["shop-*"]}), ["tx"]),
        (Access("chief", {Role.ADMIN: ["shop-*"]}), ["tx"]),
        (None, ["tx"]),
    ):
        shard, connection = Mock(producers=Producers(), on_beat=[]), Mock(is_closed=False, peer=("10.0.0.1", 1))
        client = DoorClient(connection, "id", "JAVA", 513, frozenset({"tx"}), {}, access)
        Transactions(shard).settle(client)
        assert shard.producers.groups() == names


def test_a_member_that_is_asked_does_not_get_the_signature_of_the_one_that_asks(door):
    with door.client("mixed") as member, door.client("chief") as chief:
        assert member.call(Ask.HEART_BEAT, heartbeat("asked", "shop-readers", topic=OWN)).code == 0
        chief.send(chief.request(Ask.GET_CONSUMER_RUNNING_INFO, consumerGroup="shop-readers", clientId="asked"))
        while (told := member.next_told()).code != Ask.GET_CONSUMER_RUNNING_INFO:
            pass
        assert told.fields == {"consumerGroup": "shop-readers", "clientId": "asked"}
        member.send(told.answer(body=b"{}"))
        assert chief.receive().body == b"{}"


def test_huge_and_many_fields_cost_an_unsigned_client_its_answer_only(door):
    with door.client(None) as client:
        assert client.call(Ask.GET_MAX_OFFSET, topic="t" * 1_000_000, queueId=0).code == ResponseCode.NO_PERMISSION
        many = {f"f{number}": "v" for number in range(1_000)}
        assert client.call(Ask.GET_MAX_OFFSET, **many).code == ResponseCode.NO_PERMISSION
    with door.client("reader") as reader:
        assert reader.call(Ask.GET_MAX_OFFSET, topic="t" * 1_000_000, queueId=0).code == ResponseCode.INVALID_PARAMETER


def test_the_trace_topic_is_written_by_those_that_may_write_to_it(door):
    with door.client("chief") as chief, door.client("writer") as writer:
        fields = send_fields("RMQ_SYS_TRACE_TOPIC", queueId=0)
        assert chief.call(Ask.SEND_MESSAGE_V2, b"trace", **fields).code == 0
        answer = writer.call(Ask.SEND_MESSAGE_V2, b"trace", **fields)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "writer may not write topic 'RMQ_SYS_TRACE_TOPIC'" in answer.remark


def test_a_request_is_not_signed_by_what_comes_twice_in_its_header(door):
    with door.client("writer") as client:
        right = signed(client.request(Ask.GET_MAX_OFFSET, topic=OWN, queueId=0), key_of("reader"), SECRET)
        assert client.ask(right).code == 0
        header = {"code": int(right.code), "flag": 0, "language": "JAVA", "opaque": 5, "version": right.version}
        fields = json.dumps(right.fields)[:-1] + f', "topic": "{OTHER}"}}'
        text = (json.dumps(header)[:-1] + f', "extFields": {fields}}}').encode()
        client.socket.sendall((4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text)
        assert client.receive().code == ResponseCode.NO_PERMISSION


def test_a_permissive_door_takes_clients_with_and_without_tls(tmp_path):
    authority = Authority(tmp_path)
    server = authority.issue("server", "localhost")
    settings = {
        "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": str(server.certificate),
        "REPUT_GATEWAY_PUBLIC_TLS_KEY": str(server.key),
        "REPUT_GATEWAY_REMOTING_TLS": "permissive",
        "REPUT_GATEWAY_CONSOLE": "off",
    }
    with hosted_stack(tmp_path / "store", settings=settings, remoting_port=0) as stack:
        context = ssl.create_default_context(cafile=str(authority.path))
        plain, secret = (SignedClient(stack.addresses["remoting"], "", "") for _ in range(2))
        secret.socket = context.wrap_socket(secret.socket, server_hostname="localhost")
        with contextlib.closing(plain), contextlib.closing(secret):
            for client in (plain, secret):
                client.signs_with = None
                assert client.call(Ask.SEND_MESSAGE_V2, b"x", **send_fields(OWN, queueId=0)).code == 0


def test_a_client_certificate_signs_in_where_the_request_is_not_signed(tmp_path):
    authority = Authority(tmp_path)
    server = authority.issue("server", "localhost")
    access = tmp_path / "access.toml"
    access.write_text(
        access_text() + f'[[clients]]\nname = "certified"\ncertificates = ["shop.example"]\nread = ["{OWN}"]\n'
    )
    settings = {
        "REPUT_GATEWAY_AUTH": "on",
        "REPUT_GATEWAY_ACCESS_FILE": str(access),
        "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": str(server.certificate),
        "REPUT_GATEWAY_PUBLIC_TLS_KEY": str(server.key),
        "REPUT_GATEWAY_CLIENT_CA": str(authority.path),
        "REPUT_GATEWAY_CONSOLE": "off",
    }
    with hosted_stack(tmp_path / "store", settings=settings, remoting_port=0) as stack:
        address = stack.addresses["remoting"]

        def connected(name, *names):
            files = authority.issue(name, *names)
            context = ssl.create_default_context(cafile=str(authority.path))
            context.load_cert_chain(files.certificate, files.key)
            client = SignedClient(address, key_of("chief"), SECRET)
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            return contextlib.closing(client)

        fields = {"topic": OWN, "queueId": 0}
        with connected("shop", "shop.example") as known, connected("other", "other.example") as other:
            assert other.call(Ask.SEND_MESSAGE_V2, b"x", **send_fields(OWN, queueId=0)).code == 0  # by its key
            other.signs_with = known.signs_with = None
            assert other.call(Ask.GET_MIN_OFFSET, **fields).code == ResponseCode.NO_PERMISSION
            assert known.call(Ask.GET_MIN_OFFSET, **fields).code == 0
            refused = known.call(Ask.SEND_MESSAGE_V2, b"x", **send_fields(OWN))
            assert (refused.code, "certified may not write" in refused.remark) == (ResponseCode.NO_PERMISSION, True)
        with contextlib.closing(SignedClient(address, key_of("chief"), SECRET)) as plain:
            told = plain.call(Ask.GET_MIN_OFFSET, **fields)
            assert (told.code, "TLS only" in told.remark) == (ResponseCode.NO_PERMISSION, True)


def test_a_member_ends_what_it_popped_of_its_own_retry_topic_and_of_no_other(door):
    retries = {OWN: f"%RETRY%shop-readers_{OWN}", OTHER: f"%RETRY%shop-readers_{OTHER}"}
    fields = {"consumerGroup": "shop-readers", "queueId": 0, "offset": 0, "extraInfo": "0 1 2 3 1 broker-a 0 0"}
    with door.client("reader") as reader:
        for code in (Ask.ACK_MESSAGE, Ask.CHANGE_MESSAGE_INVISIBLETIME):
            answers = {
                topic: reader.call(code, **fields, topic=name, invisibleTime=1).code for topic, name in retries.items()
            }
            assert answers[OTHER] == ResponseCode.NO_PERMISSION
            assert answers[OWN] in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_MESSAGE)
