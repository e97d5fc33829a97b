"""What the benchmarks ask a broker or a name server over RocketMQ's remoting protocol, mostly one request a connection."""

import contextlib
import json
import re
import socket
import statistics
import time
from collections.abc import Iterator, Mapping

from services.rocketmq import remoting
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import FRAME_BYTES_MAX, OK, Command, FrameError, FrameReader, encode

TIMEOUT_SECONDS = 60.0  # for a hang
FIGURES_SECONDS_MAX, FIGURES_POLL_SECONDS = 60.0, 0.2
NO_ATTRIBUTES: Mapping[str, str] = {}


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


def create_group(
    broker_port: int,
    group: str,
    *,
    ordered: bool,
    delivery_attempts_max: int,
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
) -> None:
    """Creates a consumer group, or changes its settings.

    Args:
        broker_port: on loopback.
        group: its name.
        ordered: whether it consumes in order.
        delivery_attempts_max: the first delivery and all retries.
        attributes: RocketMQ's attributes of the group.
    """
    settings = {
        "groupName": group,
        "consumeMessageOrderly": ordered,
        "retryMaxTimes": delivery_attempts_max - 1,
        "attributes": {f"+{name}": value for name, value in attributes.items()},
    }
    call(broker_port, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(settings).encode())


def runtime_info(broker_port: int) -> dict[str, str]:
    """The broker's figures about itself: `dispatchBehindBytes`, `commitLogMaxOffset`, ...

    One of 5.5.0 has none in its first second, and refuses: it is asked again, for FIGURES_SECONDS_MAX.
    """
    deadline = time.monotonic() + FIGURES_SECONDS_MAX
    while True:
        try:
            text = call(broker_port, RequestCode.GET_BROKER_RUNTIME_INFO).decode()
            break
        except RefusedError as error:
            if "NoSuchElementException" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(FIGURES_POLL_SECONDS)
    return dict(re.findall(r'"(\w+)":"([^"]*)"', text))


class OpenConnection:
    """A connection that is kept, with one request at a time.

    Args:
        connected: to a port of loopback.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._reader = FrameReader()

    def ask(self, command: Command) -> Command:
        """The answer to a request; ConnectionError, RefusedError."""
        self._socket.sendall(encode(command))
        # What the broker asks meanwhile may come in the same piece as the answer.
        while (answer := self._reader.next()) is None or not answer.is_answer:
            if answer is not None:
                continue
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"request {command.code} was not answered")
            self._reader.add(data)
        if answer.code != OK:
            raise RefusedError(f"request {command.code} was refused with {answer.code}: {answer.remark or None}")
        return answer


@contextlib.contextmanager
def open_connection(port: int) -> Iterator[OpenConnection]:
    """A connection to a port of loopback, closed after the block."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield OpenConnection(connected)


@contextlib.contextmanager
def connected_client(port: int, client_id: str, producer_group: str) -> Iterator[OpenConnection]:
    """A producer that has sent one heartbeat."""
    said = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": [{"groupName": producer_group}]}
    with open_connection(port) as client:
        client.ask(Command(RequestCode.HEART_BEAT, body=json.dumps(said).encode()))
        yield client


def request_millis(port: int, count: int) -> float:
    """The median time of a request that a broker's loop answers, one after the other on one connection."""
    millis = []
    with open_connection(port) as client:
        for _ in range(count):
            begin = time.perf_counter()
            client.ask(Command(RequestCode.GET_BROKER_CONFIG))
            millis.append((time.perf_counter() - begin) * 1000)
    return statistics.median(millis)
