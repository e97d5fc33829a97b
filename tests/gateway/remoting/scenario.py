"""What a broker is asked over remoting, step by step; RocketMQ's answers lie in tests/fixtures/remoting_door/answers.jsonl.

`python -m tests.gateway.remoting.scenario HOST:PORT` asks a broker on a fresh store, with enablePropertyFilter=true and
recallMessageEnable=true, and writes the file.
"""

import base64
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from services.rocketmq.fastjson import loads
from store.format.client_batch import BatchEntry, encode_client_batch
from store.format.record import decode_record
from tests.gateway.remoting.requests import (
    DoorClient,
    heartbeat,
    lock_body,
    properties,
    pull_fields,
    send_fields,
)
from tests.support.waiting import wait_for

ANSWERS = Path(__file__).parents[2] / "fixtures" / "remoting_door" / "answers.jsonl"
TOPIC, GROUP = "ScenarioTopic", "ScenarioGroup"
POPPED, POPPERS = "PopScenarioTopic", "PopScenarioGroup"
FROM_HEARTBEAT = {"consumerGroup": GROUP, "sysFlag": 0}
# Where the door's answers differ, and why (ADR 0133).
DIFFERENT = {
    "by SQL that is none": "a broker brings all messages for a filter that it cannot read",
    "to acknowledge behind the end": "a handle that is of another message is none, wherever its queue ends",
    "to acknowledge by a text that is no handle": "a broker answers with an error of Java",
    "to change the time behind the end": "as an acknowledgement",
}
# They differ from one store, or one run, to the next.
VARYING = frozenset(("msgId", "timestamp", "recallHandle", "popTime", "reviveQid", "restNum"))


@dataclass(frozen=True)
class Step:
    """A request.

    Attributes:
        name: what it asks, in words.
        code, fields, body: of it.
        is_repeated: until its answer has code 0: what was sent before is on its way.
        handle_of: the step whose answer brought the message that this one is about: the last one of its queue.
        compares_remark: the remark is RocketMQ's own text and not that of a Java exception, or of an address.
    """

    name: str
    code: int
    fields: Mapping[str, object] = field(default_factory=dict)
    body: bytes = b""
    is_repeated: bool = False
    compares_remark: bool = True
    handle_of: str = ""


def send(name: str, topic: str = TOPIC, body: bytes = b"hello", *, remark: bool = True, **more: object) -> Step:
    return Step(name, RequestCode.SEND_MESSAGE_V2, send_fields(topic, **more), body, compares_remark=remark)


def pull(
    name: str, offset: int = 0, topic: str = TOPIC, *, until: bool = False, remark: bool = True, **more: object
) -> Step:
    fields = pull_fields(topic, offset, queueId=1, **{"consumerGroup": GROUP} | more)
    return Step(name, RequestCode.PULL_MESSAGE, fields, is_repeated=until, compares_remark=remark)


def about_queue(name: str, code: int, topic: str = TOPIC, *, remark: bool = True, **more: object) -> Step:
    return Step(name, code, {"topic": topic, "queueId": 1} | more, compares_remark=remark)


def of_group(name: str, code: int, **more: object) -> Step:
    return about_queue(name, code, consumerGroup=GROUP, **more)


def json_step(name: str, code: int, body: object, *, remark: bool = True) -> Step:
    return Step(name, code, {}, json.dumps(body).encode(), compares_remark=remark)


def check_config(kind: str, text: str) -> object:
    subscription = {"topic": TOPIC, "subString": text, "expressionType": kind, "subVersion": 1}
    return {"clientId": "c1", "group": GROUP, "subscriptionData": subscription}


def pop(name: str, topic: str = POPPED, *, until: bool = False, remark: bool = True, **more: object) -> Step:
    fields = {
        "consumerGroup": POPPERS,
        "topic": topic,
        "queueId": 1,
        "maxMsgNums": 2,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": 0,  # now, for a broker
        "initMode": 0,
        "order": "false",
    }
    return Step(name, RequestCode.POP_MESSAGE, fields | more, is_repeated=until, compares_remark=remark)


def popped(name: str, of: str, code: int = RequestCode.ACK_MESSAGE, *, remark: bool = True, **more: object) -> Step:
    """About the last message that another step has popped."""
    return Step(name, code, {"consumerGroup": POPPERS, "topic": POPPED} | more, compares_remark=remark, handle_of=of)


def handle_in(answer: Command) -> dict[str, object]:
    """What a client gives back of the last message of a pop of one queue, or of a changed time of it."""
    fields = answer.fields
    kind, queue_id, offsets = fields["msgOffsetInfo"].split(" ")
    start, offset = fields["startOffsetInfo"].split(" ")[2], offsets.split(",")[-1]
    times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
    info = f"{start} {times} {kind} broker-a {queue_id} {offset}"
    return {"queueId": queue_id, "offset": offset, "extraInfo": info}


def of_places(name: str, code: int, *, until: bool = False, **more: object) -> Step:
    fields = {"consumerGroup": POPPERS, "topic": POPPED, "queueId": 1} | more
    # The remark of the other two says that nobody has set a code.
    return Step(name, code, fields, is_repeated=until, compares_remark=code == RequestCode.PEEK_MESSAGE)


def mode_of(topic: str = POPPED, group: str = POPPERS) -> object:
    return {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}


def assignment(strategy: str = "AVG", model: str = "CLUSTERING", topic: str = POPPED) -> object:
    return {
        **{"topic": topic, "consumerGroup": POPPERS, "clientId": "p1"},
        **{"strategyName": strategy, "messageModel": model},
    }


def recall_handle(topic: str, broker: str = "broker-a") -> str:
    due = time.time_ns() // 1_000_000 + 3_600_000
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {due} K1".encode()).decode()


POP_STEPS = (
    *(send(f"message {number} to pop", POPPED, properties=properties(UNIQ_KEY=f"P{number}")) for number in range(4)),
    json_step("the mode of a topic that is not there", RequestCode.SET_MESSAGE_REQUEST_MODE, mode_of("NoTopic")),
    json_step("the mode of a retry topic", RequestCode.SET_MESSAGE_REQUEST_MODE, mode_of(f"%RETRY%{POPPERS}")),
    Step("a heartbeat of a member that pops", RequestCode.HEART_BEAT, {}, heartbeat("p1", POPPERS, topic=POPPED)),
    json_step("the mode POP", RequestCode.SET_MESSAGE_REQUEST_MODE, mode_of()),
    json_step("its assignment", RequestCode.QUERY_ASSIGNMENT, assignment()),
    json_step("the assignment of one that broadcasts", RequestCode.QUERY_ASSIGNMENT, assignment(model="BROADCASTING")),
    json_step("the assignment by an unknown strategy", RequestCode.QUERY_ASSIGNMENT, assignment("NO_STRATEGY")),
    json_step("the assignment of a topic that is not there", RequestCode.QUERY_ASSIGNMENT, assignment(topic="NoTopic")),
    pop("to pop too many", maxMsgNums=33, remark=False),
    pop("to pop a topic that is not there", "NoTopic", remark=False),
    pop("to pop a queue that is not there", queueId=9, remark=False),
    pop("to pop by SQL that is none", exp="a > ", expType="SQL92", remark=False),
    of_places("to look at what waits", RequestCode.PEEK_MESSAGE, until=True, maxMsgNums=1),
    of_places("whether there is something", RequestCode.NOTIFICATION, pollTime=0, bornTime=0),
    of_places("how many pops wait", RequestCode.POLLING_INFO),
    pop("two messages popped", until=True),
    popped("to acknowledge the second", "two messages popped"),
    popped("to acknowledge it again", "two messages popped"),
    popped("to acknowledge in a topic that is not there", "two messages popped", topic="NoTopic", remark=False),
    popped("to acknowledge in a queue that is not there", "two messages popped", queueId=9, remark=False),
    popped("to acknowledge behind the end", "two messages popped", offset=99, remark=False),
    popped("to acknowledge by a text that is no handle", "two messages popped", extraInfo="x", remark=False),
    pop("the next message popped", maxMsgNums=1),
    popped(
        "to change its time",
        "the next message popped",
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        invisibleTime=90_000,
        remark=False,
    ),
    popped(
        "to change the time behind the end",
        "the next message popped",
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        **{"invisibleTime": 90_000, "offset": 99},
        remark=False,
    ),
    json_step(
        "to acknowledge none", RequestCode.BATCH_ACK_MESSAGE, {"brokerName": "broker-a", "acks": []}, remark=False
    ),
    pop("the rest popped"),
    pop("to pop when there is nothing"),
    pop("to pop in order", order="true", consumerGroup="OrderedScenarioGroup"),
    pop("to pop in order behind that", order="true", consumerGroup="OrderedScenarioGroup"),
    *(
        Step(name, RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle}, compares_remark=False)
        for name, topic, handle in (
            ("to recall by a text that is no handle", POPPED, "none"),
            ("to recall in a topic that is not there", "NoTopic", recall_handle("NoTopic")),
            ("to recall by the handle of another topic", POPPED, recall_handle("Other")),
            ("to recall by the handle of another broker", POPPED, recall_handle(POPPED, "broker-z")),
        )
    ),
)


ENTRIES = [BatchEntry(n, b"in-batch", properties(UNIQ_KEY=f"B{n}", TAGS="B").encode()) for n in range(2)]

STEPS = (
    Step("a code that no broker knows", 999),
    send("the first message of a topic"),
    send("a message with another tag", properties=properties(UNIQ_KEY="U2", TAGS="B", a="5")),
    Step(
        "a batch",
        RequestCode.SEND_BATCH_MESSAGE,
        send_fields(TOPIC, batch="true", properties=""),
        encode_client_batch(ENTRIES),
    ),
    send("a queue that the topic has not", queueId=4, remark=False),
    send("a topic whose model is not there", "NoModel", defaultTopic="NoSuchModel", remark=False),
    send("a topic that takes no message", "SELF_TEST_TOPIC"),
    send("a name that is none", "no/topic", remark=False),
    pull("messages before the group has a member", sysFlag=0, remark=False),
    Step("members of a group without any", RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}),
    Step("a heartbeat", RequestCode.HEART_BEAT, {}, heartbeat("c1", GROUP, topic=TOPIC, expression="A", version=5)),
    Step("members", RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}),
    pull("messages with the subscription inside", until=True),
    pull("two messages", maxMsgNums=2),
    pull("by the subscription of the heartbeat", sysFlag=0, subVersion=5),
    pull("by a newer subscription", sysFlag=0, subVersion=6),
    pull("a tag that none has", subscription="Z"),
    pull("by SQL", subscription="a > 4", expressionType="SQL92"),
    pull("by SQL that is none", subscription="a > ", expressionType="SQL92", remark=False),
    pull("the end of the queue", 4),
    pull("behind the end of the queue", 9),
    pull("a topic that is not there", topic="NoTopic", remark=False),
    Step(
        "a queue that is not there",
        RequestCode.PULL_MESSAGE,
        pull_fields(TOPIC, queueId=99, consumerGroup=GROUP),
        compares_remark=False,
    ),
    of_group("the position of a group that has none", RequestCode.QUERY_CONSUMER_OFFSET),
    of_group("the same without zero", RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound="false"),
    Step("to lock queues", RequestCode.LOCK_BATCH_MQ, {}, lock_body("c1", GROUP, TOPIC, 0, 1)),
    Step("to lock them for another", RequestCode.LOCK_BATCH_MQ, {}, lock_body("c2", GROUP, TOPIC, 1, 2)),
    Step("to unlock", RequestCode.UNLOCK_BATCH_MQ, {}, lock_body("c1", GROUP, TOPIC, 1)),
    Step("to lock what was unlocked", RequestCode.LOCK_BATCH_MQ, {}, lock_body("c2", GROUP, TOPIC, 1)),
    of_group("to store a position", RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=3),
    of_group("the position", RequestCode.QUERY_CONSUMER_OFFSET),
    Step(
        "to store a position of a topic that is not there",
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": GROUP, "topic": "NoTopic", "queueId": 0, "commitOffset": 1},
        compares_remark=False,
    ),
    about_queue("the end", RequestCode.GET_MAX_OFFSET),
    about_queue("the begin", RequestCode.GET_MIN_OFFSET),
    about_queue("the first store time", RequestCode.GET_EARLIEST_MSG_STORETIME),
    about_queue("a position by time", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=0),
    about_queue("a position by a time to come", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=9_000_000_000_000),
    Step("the end of a queue without messages", RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}),
    Step("a field that is missing", RequestCode.GET_MAX_OFFSET, {"topic": TOPIC}, compares_remark=False),
    json_step("to check tags", RequestCode.CHECK_CLIENT_CONFIG, check_config("TAG", "A || B")),
    json_step("to check SQL", RequestCode.CHECK_CLIENT_CONFIG, check_config("SQL92", "a > 5")),
    json_step(
        "to check SQL that is none", RequestCode.CHECK_CLIENT_CONFIG, check_config("SQL92", "a > "), remark=False
    ),
    Step(
        "to send back what is not there",
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {"offset": 1 << 40, "group": GROUP, "delayLevel": 0, "unitMode": "false"},
    ),
    Step(
        "a verdict about nothing",
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "pg",
            "tranStateTableOffset": 0,
            "commitLogOffset": 1 << 40,
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "U",
            "transactionId": "U",
        },
    ),
    Step("to leave the group", RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": GROUP}),
    Step("members after that", RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}),
)


def shown(step: Step, answer: Command) -> dict[str, object]:
    """What is compared of an answer."""
    row: dict[str, object] = {"step": step.name, "code": answer.code}
    if step.compares_remark:
        row["remark"] = answer.remark
    row["fields"] = {name: "" if name in VARYING else value for name, value in sorted(answer.fields.items())}
    if step.code in (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE):
        # Those of a pop are made again, with the properties sorted.
        in_order = step.code == RequestCode.POP_MESSAGE
        row["records"] = [_record(each, in_order=in_order) for each in _records(answer.body)]
    elif answer.body:
        row["body"] = _sorted(loads(answer.body))
    return row


def _records(body: bytes) -> list[object]:
    found, at = [], 0
    while at < len(body):
        record = decode_record(body, at=at)
        found.append(record)
        at += record.store_size_bytes
    return found


def _record(record: "object", *, in_order: bool = False) -> dict[str, object]:
    stored = dict(record.properties)  # type: ignore[attr-defined]
    stored.pop("__CRC32#", None)
    names = ("topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_time_millis", "reconsume_times")
    row: dict[str, object] = {name: getattr(record, name) for name in names}
    return row | {
        "body": record.body.decode(),
        "properties": sorted(stored.items()) if in_order else list(stored.items()),
    }


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return sorted((_sorted(each) for each in value), key=json.dumps)
    return value


def play(client: DoorClient) -> list[dict[str, object]]:
    """The answers to all steps."""
    rows = []
    answers: dict[str, Command] = {}
    for step in (*STEPS, *POP_STEPS):
        about = handle_in(answers[step.handle_of]) if step.handle_of else {}

        def ask(step: Step = step, fields: Mapping[str, object] = about | step.fields) -> Command | None:
            answer = client.call(step.code, step.body, **fields)
            is_done = not step.is_repeated or (answer.code == 0 and answer.fields.get("maxOffset", "4") == "4")
            return answer if is_done else None

        answers[step.name] = wait_for(ask, step.name)
        rows.append(shown(step, answers[step.name]))
    return rows


if __name__ == "__main__":
    with contextlib.closing(DoorClient(sys.argv[1])) as asked:
        lines = [json.dumps(row, ensure_ascii=False) for row in play(asked)]
    ANSWERS.parent.mkdir(exist_ok=True)
    ANSWERS.write_text("".join(f"{line}\n" for line in lines))
