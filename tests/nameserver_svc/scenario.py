"""What a name server is asked, step by step; the answers of RocketMQ's lie in tests/fixtures/nameserver/answers.jsonl.

`tests/rocketmq/test_nameserver.py` asks the real one again, and writes the file with RECORD=1.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.rocketmq.command import Command
from services.rocketmq.fastjson import loads

ANSWERS = Path(__file__).parents[1] / "fixtures" / "nameserver" / "answers.jsonl"
# Of the client that asks: MQVersion's ordinals of 5.3.3 and of 4.9.3, which reads numbers as keys.
NEW, OLD = 479, 400


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        code, fields, body, version: of it.
        connection: which of several it goes over.
        compares: what of the answer must be RocketMQ's: `all`, or `code` where it tells an exception of Java.
    """

    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: int = NEW
    connection: int = 0
    compares: str = "all"

    def command(self) -> Command:
        return Command(self.code, self.fields, self.body, opaque=1, language="JAVA", version=self.version)


@dataclass(frozen=True)
class End:
    """The end of a connection."""

    connection: int


def topic(name: str, read: int = 8, write: int = 8, perm: int = 6, flag: int = 0) -> dict[str, object]:
    return {
        "topicName": name,
        "readQueueNums": read,
        "writeQueueNums": write,
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": flag,
        "order": False,
        "attributes": {},
    }


def body(*topics: dict[str, object], counter: int = 1, state: int = 0, filters: tuple[str, ...] = ()) -> bytes:
    version = {"counter": counter, "stateVersion": state, "timestamp": 1000}
    table = {str(each["topicName"]): each for each in topics}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"filterServerList": list(filters), "topicConfigSerializeWrapper": wrapper}).encode()


def broker(name: str, address: str, broker_id: int = 0, cluster: str = "c", **more: str) -> dict[str, str]:
    return {
        "brokerName": name,
        "brokerAddr": address,
        "brokerId": str(broker_id),
        "clusterName": cluster,
        "haServerAddr": "10.0.0.1:10912",
        **more,
    }


def version(counter: int) -> bytes:
    return json.dumps({"counter": counter, "stateVersion": 0, "timestamp": 1000}).encode()


def compressed(*topics: str) -> bytes:
    def text(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    rows = b"".join(text(each.encode()) for each in topics)
    return zlib.compress(text(version(9)) + struct.pack(">i", len(topics)) + rows + text(b"[]") + struct.pack(">i", 0))


A, B, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
TWO = body(topic("t"), topic("u", 4, 2, 4))
ORDER = {"namespace": "ORDER_TOPIC_CONFIG"}
CLUSTERS, TOPICS = Ask(106), Ask(206)


def route(name: str, **more: str) -> Ask:
    return Ask(105, {"topic": name, **more})


STEPS: list[Ask | End] = [
    # nobody is there
    *(route("t"), Ask(105), CLUSTERS, TOPICS, Ask(304), Ask(224, {"cluster": "c"})),
    # a broker with two topics, and what it is asked in which form
    Ask(103, broker("a", A), TWO),
    *(route("t"), route("u"), route("x"), CLUSTERS, TOPICS, Ask(224, {"cluster": "c"}), Ask(224, {"cluster": "z"})),
    *(Ask(105, {"topic": "t"}, version=OLD), Ask(105, {"topic": "t", "acceptStandardJsonOnly": "true"}, version=OLD)),
    *(Ask(304), Ask(106, version=OLD)),
    # versions
    *(Ask(322, broker("a", A), version(1)), Ask(322, broker("a", A), version(2)), Ask(322, broker("z", B), version(1))),
    # another broker, over a connection of its own, and slaves of the first
    *(Ask(103, broker("b", B), body(topic("t"), topic("v")), connection=1), route("t"), CLUSTERS),
    Ask(103, broker("a", SLAVE, 1), body(topic("t"), topic("only at the slave")), connection=2),
    *(
        CLUSTERS,
        route("t"),
        route("only at the slave"),
        Ask(901, {"brokerName": "a", "clusterName": "c"}, compares="body"),
    ),
    Ask(904, {"brokerName": "a", "clusterName": "c", "brokerAddr": A}),
    # the right to write
    *(Ask(205, {"brokerName": "a"}), route("t"), route("u"), Ask(103, broker("a", A), TWO), route("t")),
    *(Ask(327, {"brokerName": "a"}), route("t"), route("u"), Ask(205, {"brokerName": "z"}), Ask(205)),
    *(Ask(205, {"brokerName": "a"}), Ask(103, broker("a", A), body(topic("t"), topic("u", 4, 2, 4), counter=2))),
    *(route("t"), route("u")),
    # key-value configuration
    *(Ask(101, {**ORDER, "key": "t"}), Ask(219, ORDER), Ask(100, {**ORDER, "key": "t", "value": "a:8"})),
    *(Ask(101, {**ORDER, "key": "t"}), Ask(101, {**ORDER, "key": "z"}), Ask(219, ORDER), Ask(219, {"namespace": "z"})),
    *(Ask(101), Ask(219), Ask(100), Ask(100, {**ORDER, "key": "z"}, compares="code"), route("t")),
    Ask(103, broker("a", A), body(topic("t"), topic("u", 4, 2, 4), counter=2)),
    *(Ask(102, {**ORDER, "key": "t"}), Ask(102, {**ORDER, "key": "z"}), Ask(102, {"namespace": "z", "key": "t"})),
    Ask(219, ORDER),
    # topics that are deleted come back with their broker
    *(Ask(216, {"topic": "u"}), route("u"), Ask(216, {"topic": "none"}), Ask(216), TOPICS),
    *(Ask(103, broker("a", A), body(topic("t"), topic("u", 4, 2, 4), counter=2)), route("u")),
    *(
        Ask(216, {"topic": "t", "clusterName": "z"}),
        route("t"),
        Ask(216, {"topic": "t", "clusterName": "c"}),
        route("t"),
    ),
    *(Ask(103, broker("a", A), body(topic("t"), topic("u", 4, 2, 4), counter=3)), route("t")),
    # flags of units
    Ask(103, broker("a", A), body(topic("n", flag=1), topic("s", flag=2), topic("b", flag=3), counter=4)),
    *(Ask(311), Ask(312), Ask(313), TOPICS),
    # an address that moves, of one name and id
    *(Ask(103, broker("a", "10.0.0.4:10911"), body(topic("t"), topic("u"), counter=5)), CLUSTERS),
    *(Ask(103, broker("a", "10.0.0.5:10911"), body(topic("t"), topic("u"), counter=5, state=5)), CLUSTERS),
    *(Ask(103, broker("a", "10.0.0.6:10911"), body(topic("t"), topic("u"), counter=6, state=3)), CLUSTERS),
    # a master becomes a slave, and a slave the master
    *(
        Ask(103, broker("a", "10.0.0.5:10911", 2), body(topic("t"), topic("u"), counter=7, state=6)),
        CLUSTERS,
        route("t"),
    ),
    *(
        Ask(103, broker("a", SLAVE), body(topic("t"), topic("w"), counter=8, state=6), connection=2),
        CLUSTERS,
        route("w"),
    ),
    # clusters
    *(Ask(103, broker("d", "10.0.0.9:10911", cluster="d"), body(topic("t"), topic("x"))), CLUSTERS),
    *(Ask(224, {"cluster": "d"}), Ask(216, {"topic": "t", "clusterName": "d"}), route("t"), route("x")),
    *(Ask(103, broker("d", "10.0.0.9:10911"), body(topic("t"), topic("x"))), CLUSTERS),
    # filter servers
    Ask(103, broker("f", "10.0.0.11:10911"), body(topic("t"), topic("y"), counter=3, filters=("10.9.9.9:1",))),
    *(route("y"), Ask(103, broker("f", "10.0.0.11:10911"), body(topic("t"), topic("y"), counter=4)), route("y")),
    # a compressed body
    Ask(
        103,
        broker("k", "10.0.0.8:10911", compressed="true"),
        compressed("zz 3 4 6 SINGLE_TAG {}", "zy 5 5 2 SINGLE_TAG", 'zx 5 5 2 SINGLE_TAG {"+message.type":"DELAY"}'),
    ),
    *(route("zz"), route("zy"), route("zx")),
    # what cannot be read changes nothing
    Ask(103, broker("q", "10.0.0.7:10911"), b"{", compares="code"),
    Ask(103, broker("q", "10.0.0.7:10911", compressed="true"), b"\0\1\2", compares="code"),
    Ask(103, broker("q", "10.0.0.7:10911", bodyCrc32="5"), TWO),
    *(Ask(103, {"brokerName": "q"}, TWO, compares="code"), Ask(103, compares="code"), CLUSTERS),
    Ask(103, broker("q", "10.0.0.7:10911", bodyCrc32=str(zlib.crc32(TWO) & 0x7FFF_FFFF)), TWO),
    CLUSTERS,
    # without a body it is known and has no topics
    *(Ask(103, broker("e", "10.0.0.10:10911")), CLUSTERS, TOPICS),
    # a broker goes by itself, and with its connection
    *(Ask(104, broker("k", "10.0.0.8:10911")), CLUSTERS, TOPICS, route("zz"), Ask(104, broker("z", "1.1.1.1:1"))),
    *(End(1), CLUSTERS, route("v"), End(2), CLUSTERS, route("w"), route("t")),
    *(Ask(999), Ask(11)),
]


def comparable(answer: Command, compares: str) -> object:
    """What of an answer is compared: lists of names and queues in any order."""
    if compares == "code":
        return answer.code
    try:
        content = _sorted(loads(answer.body)) if answer.body else None
    except ValueError:
        content = answer.body
    bare = b"{0:" in answer.body or b",1:" in answer.body
    if compares == "body":
        return answer.code, content, bare
    return answer.code, answer.remark, dict(answer.fields), content, bare


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return value
