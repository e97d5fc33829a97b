"""What the benchmarks ask a broker or a name server over RocketMQ's remoting protocol, one request a connection."""

import json
import re
import socket
from collections.abc import Mapping

from services.rocketmq import remoting
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import FRAME_BYTES_MAX, OK, Command, FrameError

TIMEOUT_SECONDS = 10.0


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
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
        try:
            answer = remoting.exchange(connection, Command(code, fields or {}, body, opaque=1), FRAME_BYTES_MAX)
        except FrameError as error:
            raise RuntimeError(str(error)) from error
    if answer.code != OK:
        raise RefusedError(f"request {code} was refused with {answer.code}: {answer.remark or None}")
    return answer.fields, answer.body


def has_broker(namesrv_port: int, broker_name: str) -> bool:
    """Whether a broker has registered with the name server."""
    try:
        return f'"{broker_name}"'.encode() in call(namesrv_port, RequestCode.GET_BROKER_CLUSTER_INFO)
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
    call(broker_port, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def create_group(broker_port: int, group: str, *, ordered: bool, delivery_attempts_max: int) -> None:
    """Creates a consumer group, or changes its settings.

    Args:
        broker_port: on loopback.
        group: its name.
        ordered: whether it consumes in order.
        delivery_attempts_max: the first delivery and all retries.
    """
    settings = {"groupName": group, "consumeMessageOrderly": ordered, "retryMaxTimes": delivery_attempts_max - 1}
    call(broker_port, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(settings).encode())


def runtime_info(broker_port: int) -> dict[str, str]:
    """The broker's figures about itself: `dispatchBehindBytes`, `commitLogMaxOffset`, ..."""
    text = call(broker_port, RequestCode.GET_BROKER_RUNTIME_INFO).decode()
    return dict(re.findall(r'"(\w+)":"([^"]*)"', text))
