"""What a producer asks of a real broker by the remoting protocol (sends, recalls, verdicts), and the log that it writes."""

import base64
import itertools
import pathlib
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.sides import remoting
from services.rocketmq.codes import RequestCode
from store.format.properties import parse_properties

TO_DEAD_LETTERS = -1  # instead of a delay level
PREPARED, COMMIT, ROLLBACK = 4, 8, 12  # MessageSysFlag
MAGICS = (0xDAA320A7, 0xDAA320AB)
_HEADER = struct.Struct(">iIiiiqqiq8sq8siqi")


class Stored(NamedTuple):
    """A record of the log."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_millis: int
    properties: Mapping[str, str]
    body: str

    @property
    def unique_key(self) -> str:
        """Its unique key; empty for none."""
        return self.properties.get("UNIQ_KEY", "")


def stored(store: pathlib.Path, topic: str) -> list[Stored]:
    """The records of a topic, by their own bytes."""
    found: list[Stored] = []
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + _HEADER.size < len(data):
            size, magic, _, queue_id, _, queue_offset, place, _, _, _, millis, _, _, _, length = _HEADER.unpack_from(
                data, at
            )
            if magic not in MAGICS:
                break
            topic_at = at + _HEADER.size + length
            topic_end = topic_at + 1 + data[topic_at]
            (properties_length,) = struct.unpack_from(">h", data, topic_end)
            if data[topic_at + 1 : topic_end].decode() == topic:
                properties = parse_properties(data[topic_end + 2 : topic_end + 2 + properties_length])
                body = data[at + _HEADER.size : topic_at].decode()
                found.append(Stored(topic, queue_id, queue_offset, place, millis, properties, body))
            at += size
    return found


_numbers = itertools.count(int(time.time() * 1000) << 16)


class Receipt(NamedTuple):
    """Where a message was stored, as the broker answered."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    unique_key: str


def send(port: int, topic: str, body: str, *, sys_flag: int = 0, **properties: str) -> str:
    """Send a message to queue 0; its unique key."""
    return send_to(port, topic, 0, body, sys_flag=sys_flag, **properties).unique_key


def send_to(
    port: int,
    topic: str,
    queue_id: int,
    body: str,
    *,
    sys_flag: int = 0,
    timeout_seconds: float = remoting.TIMEOUT_SECONDS,
    **properties: str,
) -> Receipt:
    """Send a message to a queue; errors as `remoting.exchange`."""
    unique_key = f"{next(_numbers):032X}"
    named = {"UNIQ_KEY": unique_key, **properties}
    fields = {
        "producerGroup": "tests",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1",
        "queueId": str(queue_id),
        "sysFlag": str(sys_flag),
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "0",
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in named.items()),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    answer, _ = remoting.exchange(port, RequestCode.SEND_MESSAGE, fields, body.encode(), timeout_seconds)
    # The offset is the end of the message's id: 4 bytes address, 4 bytes port, 8 bytes offset.
    return Receipt(
        topic, int(answer["queueId"]), int(answer["queueOffset"]), int(answer["msgId"][16:], 16), named["UNIQ_KEY"]
    )


def update_consumer_offset(port: int, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Move a group to a position of a queue."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    remoting.call(port, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def now_millis() -> int:
    """The time (ms since 1970)."""
    return time.time_ns() // 1_000_000


def send_half(port: int, topic: str, body: str) -> str:
    """Send a half message; its unique key."""
    return send(port, topic, body, sys_flag=PREPARED, TRAN_MSG="true", PGROUP="tests")


def end_transaction(port: int, half: Stored | Receipt, verdict: int) -> None:
    """Say the verdict for a half message: COMMIT or ROLLBACK."""
    fields = {
        "topic": half.topic if isinstance(half, Receipt) else half.properties["REAL_TOPIC"],
        "producerGroup": "tests",
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.commit_log_offset),
        "commitOrRollback": str(verdict),
        "fromTransactionCheck": "false",
        "msgId": half.unique_key,
        "transactionId": half.unique_key,
    }
    remoting.call(port, RequestCode.END_TRANSACTION, fields)


def recall(port: int, topic: str, deliver_millis: int, unique_key: str) -> None:
    """Take back a message that waits for a time (ms since 1970), by a handle for shard `broker-a`."""
    handle = base64.urlsafe_b64encode(f"v1 {topic} broker-a {deliver_millis} {unique_key}".encode()).decode()
    remoting.call(port, RequestCode.RECALL_MESSAGE, {"topic": topic, "producerGroup": "tests", "recallHandle": handle})


def send_back(port: int, group: str, message: Receipt, delay_level: int) -> None:
    """Say that a group could not consume a message: it comes again after a delay level, or goes to the dead letters."""
    fields = {
        "group": group,
        "offset": str(message.commit_log_offset),
        "delayLevel": str(delay_level),
        "originMsgId": message.unique_key,
        "originTopic": message.topic,
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    remoting.call(port, RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def delete_expired_files(port: int) -> None:
    """Let retention look, also when its hour has not come: 20 times, `cleanResourceInterval` apart."""
    remoting.call(port, RequestCode.DELETE_EXPIRED_COMMITLOG)
