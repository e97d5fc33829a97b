"""The part of RocketMQ's remoting protocol that the benchmarks need: one request to a broker or a name server.

frame   4 bytes: length of the rest | 4 bytes: 0 (JSON) and length of the header | header, JSON | body
"""

import json
import re
import socket
import struct
from collections.abc import Mapping
from typing import Any

CREATE_TOPIC, BROKER_RUNTIME_INFO, CLUSTER_INFO, CREATE_GROUP = 17, 28, 106, 200
OK = 0
TIMEOUT_SECONDS = 10.0
FRAME_BYTES_MAX = 16 << 20


class RefusedError(RuntimeError):
    """The broker or name server refused the request."""


def call(port: int, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """The body of the response to a request; see `exchange`."""
    return exchange(port, code, fields, body)[1]


def exchange(
    port: int,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[Mapping[str, str], bytes]:
    """The fields and the body of the response to a request to a port of loopback.

    Raises:
        OSError: there is no response.
        RefusedError: the request was refused.
        RuntimeError: the response has an invalid length.
    """
    header = {"code": code, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0, "extFields": dict(fields or {})}
    raw = json.dumps(header).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", _exactly(stream, 4))
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise RuntimeError(f"an answer of {length} bytes")
            frame = _exactly(stream, length)
    header_length = struct.unpack(">i", frame[:4])[0] & 0xFFFFFF
    answer = json.loads(frame[4 : 4 + header_length])
    if answer["code"] != OK:
        raise RefusedError(f"request {code} was refused with {answer['code']}: {answer.get('remark')}")
    return answer.get("extFields") or {}, frame[4 + header_length :]


def _exactly(stream: Any, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ConnectionError("the connection ended inside an answer")
    return bytes(data)


def has_broker(namesrv_port: int, broker_name: str) -> bool:
    """Whether a broker has registered with the name server."""
    try:
        return f'"{broker_name}"'.encode() in call(namesrv_port, CLUSTER_INFO)
    except OSError:
        return False


def create_topic(broker_port: int, topic: str, queue_count: int, message_type: str = "") -> None:
    """Creates a topic, or changes its number of queues.

    Args:
        broker_port: on loopback.
        topic: its name.
        queue_count: to read and to write.
        message_type: `NORMAL`, `FIFO`, `DELAY`, `TRANSACTION` or `MIXED`; without it the topic has no such attribute.
    """
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queue_count),
        "writeQueueNums": str(queue_count),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    if message_type:
        fields["attributes"] = f"+message.type={message_type}"
    call(broker_port, CREATE_TOPIC, fields)


def create_group(broker_port: int, group: str, *, ordered: bool, delivery_attempts_max: int) -> None:
    """Creates a consumer group, or changes its settings.

    Args:
        broker_port: on loopback.
        group: its name.
        ordered: whether it consumes in order.
        delivery_attempts_max: the first delivery and all retries.
    """
    settings = {"groupName": group, "consumeMessageOrderly": ordered, "retryMaxTimes": delivery_attempts_max - 1}
    call(broker_port, CREATE_GROUP, body=json.dumps(settings).encode())


def runtime_info(broker_port: int) -> dict[str, str]:
    """The broker's figures about itself: `dispatchBehindBytes`, `commitLogMaxOffset`, ..."""
    text = call(broker_port, BROKER_RUNTIME_INFO).decode()
    return dict(re.findall(r'"(\w+)":"([^"]*)"', text))
