"""RocketMQ's protocol as far as the benchmarks speak it, against frames put together by hand."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from benchmarks.sides import remoting
from benchmarks.sides.remoting import open_connection
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command, FrameReader, encode
from tests.support.waiting import WAIT_SECONDS_MAX


def _frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


@contextlib.contextmanager
def _answering(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that says each answer to a request of a connection; its port, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


def test_a_topic_is_asked_for_in_rocketmqs_words() -> None:
    with _answering(_frame(b'{"code":0}')) as (port, asked):
        remoting.create_topic(port, "Bench", 8)
    (request,) = asked
    length, header_length = struct.unpack(">ii", request[:8])
    header = json.loads(request[8 : 8 + header_length])
    assert length == len(request) - 4
    assert header["code"] == 17
    assert header["extFields"]["topic"] == "Bench"
    assert header["extFields"]["writeQueueNums"] == "8"


def test_runtime_info_is_read_from_the_body() -> None:
    body = b'{"table":{"dispatchBehindBytes":"0","commitLogMaxOffset":"1234"}}'
    with _answering(_frame(b'{"code":0}', body)) as (port, _):
        assert remoting.runtime_info(port) == {"dispatchBehindBytes": "0", "commitLogMaxOffset": "1234"}


def test_a_broker_of_5_5_0_that_has_just_started_has_no_figures_and_is_asked_again() -> None:
    none = _frame(b'{"code":1,"remark":"java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast"}')
    body = b'{"table":{"commitLogMaxOffset":"1"}}'
    with _answering(none, _frame(b'{"code":0}', body)) as (port, asked):
        assert remoting.runtime_info(port) == {"commitLogMaxOffset": "1"}
    assert len(asked) == 2


def test_a_name_server_without_the_broker_does_not_have_it() -> None:
    body = b'{"brokerAddrTable":{"broker-b":{}}}'
    with _answering(_frame(b'{"code":0}', body)) as (port, _):
        assert not remoting.has_broker(port, "broker-a")
    with _answering(_frame(b'{"code":0}', body)) as (port, _):
        assert remoting.has_broker(port, "broker-b")


def test_nobody_there_has_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not remoting.has_broker(port, "broker-a")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_frame(b'{"code":1,"remark":"no permission"}'), "no permission"),
        (struct.pack(">i", -1), "4294967295 bytes"),
        (struct.pack(">i", 100) + b"short", "ended inside"),
    ],
)
def test_a_bad_answer_is_an_error(answer: bytes, error: str) -> None:
    with _answering(answer) as (port, _), pytest.raises((RuntimeError, ConnectionError), match=error):
        remoting.call(port, RequestCode.GET_BROKER_CLUSTER_INFO)


def test_a_group_is_asked_for_with_its_retries_in_the_body() -> None:
    with _answering(_frame(b'{"code":0}')) as (port, asked):
        remoting.create_group(port, "Group", ordered=True, delivery_attempts_max=3)
    (request,) = asked
    length, header_length = struct.unpack(">ii", request[:8])
    assert length == len(request) - 4
    assert json.loads(request[8 : 8 + header_length])["code"] == 200
    settings = json.loads(request[8 + header_length :])
    assert settings == {"groupName": "Group", "consumeMessageOrderly": True, "retryMaxTimes": 2, "attributes": {}}


def test_an_answer_that_came_in_one_piece_with_a_request_of_the_broker_was_not_seen() -> None:
    """A broker tells the members of a group that there is a new one, with the answer to its heartbeat."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connected, _ = listening.accept()
            with connected:
                reader = FrameReader()
                while (asked := reader.next()) is None:
                    reader.add(connected.recv(1 << 16))
                told = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
                connected.sendall(encode(told) + encode(asked.answer(0, "", {}, b"here")))
                connected.recv(1)  # until the client has closed

        thread = threading.Thread(target=serve)
        thread.start()
        with open_connection(listening.getsockname()[1]) as client:
            assert client.ask(Command(RequestCode.HEART_BEAT)).body == b"here"
        thread.join(WAIT_SECONDS_MAX)
        assert not thread.is_alive()
