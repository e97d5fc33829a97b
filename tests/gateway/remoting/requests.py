"""A client of a door, and the fields and bodies of its requests, as those of RocketMQ's clients."""

import json
import socket

from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from services.rocketmq.signature import sign
from store.format.java_text import java_string_hash
from store.format.record import decode_record
from tests.support.remoting import RemotingClient

HAS_SUBSCRIPTION, MAY_WAIT = 4, 2
V1, V2, BATCH = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
LETTERS = dict(
    zip(
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
            *("flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
        ),
        "abcdefghijklm",
        strict=True,
    )
)
UNIQUE = "7F0000010001AAAABBBBCCCC00000001"


class DoorClient(RemotingClient):
    """A client of a door: it asks with fields as Java's do, one request at a time."""

    def __init__(self, address, language="JAVA", version=479):
        host, _, port = address.rpartition(":")
        super().__init__(socket.create_connection((host, int(port))))
        self.language = language
        self.version = version
        self._opaque = 0
        self.told = []  # requests of the server

    def close(self):
        self.socket.close()

    def request(self, code, body=b"", command_flag=0, **fields):
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        return Command(code, texts, body, self._opaque, command_flag, "", self.language, self.version)

    def call(self, code, body=b"", **fields):
        """The answer to a request; what the server asks meanwhile is kept in `told`."""
        request = self.request(code, body, **fields)
        self.send(request)
        while True:
            command = self.receive()
            if command.is_answer:
                assert command.opaque == request.opaque
                return command
            self.told.append(command)

    def next_told(self):
        """The next request of the server."""
        return self.told.pop(0) if self.told else self.receive()


class SignedClient(DoorClient):
    """The same; it signs as a client with a hook."""

    def __init__(self, address, access_key, secret):
        super().__init__(address)
        self.signs_with = access_key, secret

    def request(self, code, body=b"", command_flag=0, **fields):
        command = super().request(code, body, command_flag, **fields)
        return command if self.signs_with is None else signed(command, *self.signs_with)


def signed(command, access_key, secret):
    """A request as `AclClientRPCHook` leaves it."""
    return sign(command, access_key, secret.encode())


def properties(**named):
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items())


def send_fields(topic, code=V2, **more):
    fields = {
        "producerGroup": "pg",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 1,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_123,
        "flag": 7,
        "properties": properties(UNIQ_KEY=UNIQUE, TAGS="A", KEYS="k1 k2", WAIT="true"),
        "reconsumeTimes": 0,
        "unitMode": "false",
        "maxReconsumeTimes": 0,
        "batch": "false",
    } | more
    return fields if code == V1 else {LETTERS[name]: value for name, value in fields.items()}


def pull_fields(topic, offset=0, **more):
    fields = {
        "consumerGroup": "pullers",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": HAS_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return fields | more


def records(body):
    """The records of a body, decoded with all their checks."""
    found = []
    at = 0
    while at < len(body):
        record = decode_record(body, at=at)
        found.append(record)
        at += record.store_size_bytes
    return found


def tags_in(expression):
    return [] if expression == "*" else [tag.strip() for tag in expression.split("||")]


def heartbeat(client_id, *groups, topic="T", expression="*", version=1, producers=(), **more):
    consumers = [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": group,
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [
                {
                    "classFilterMode": False,
                    "codeSet": [java_string_hash(tag) for tag in tags_in(expression)],
                    "expressionType": "TAG",
                    "subString": expression,
                    "subVersion": version,
                    "tagsSet": tags_in(expression),
                    "topic": topic,
                },
            ],
            "unitMode": False,
        }
        for group in groups
    ]
    body = {
        "clientID": client_id,
        "consumerDataSet": consumers,
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": name} for name in ("CLIENT_INNER_PRODUCER", *producers)],
        "withoutSub": False,
    }
    return json.dumps(body | more).encode()


def lock_body(client_id, group, topic, *queue_ids):
    rows = [{"brokerName": "broker-a", "queueId": queue_id, "topic": topic} for queue_id in queue_ids]
    return json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": rows, "onlyThisBroker": False}).encode()
