"""RemotingServer over real sockets: commands both ways, TLS, and the limits of a connection."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import structlog

from services.rocketmq import remoting_server
from services.rocketmq.address import Address
from services.rocketmq.command import ANSWER, ONEWAY, Command, encode
from services.rocketmq.remoting_server import (
    CERTIFIED_SECONDS_MAX,
    FRAME_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    OUTGOING_BYTES_MAX,
    READ_BYTES,
    REQUEST_BYTES_MAX,
    REQUEST_COUNT_MAX,
    STALL_SECONDS_MAX,
    Connection,
    RemotingServer,
)
from services.serving.identity import names_of
from tests.support.certificates import Authority
from tests.support.remoting import RemotingClient
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ECHO, LATER, LARGE, BROKEN, SILENT = range(5)


class Echo:
    """Answers what it is sent; LATER when the test says so."""

    def __init__(self) -> None:
        self.later: list[Callable[[], object]] = []
        self.closed: list[Connection] = []
        self.opened: list[Connection] = []
        self.came: list[Command] = []

    def on_command(self, connection: Connection, command: Command) -> None:
        self.came.append(command)
        if connection not in self.opened:
            self.opened.append(connection)
        match command.code:
            case n if n == LATER:
                self.later.append(lambda: connection.answer(command, command.answer(body=command.body)))
            case n if n == LARGE:
                connection.answer(command, command.answer(body=bytes(1 << 20)))
            case n if n == BROKEN:
                raise RuntimeError("a bug")
            case n if n == SILENT:
                pass
            case _:
                connection.answer(command, command.answer(fields=command.fields, body=command.body))

    def on_close(self, connection: Connection) -> None:
        self.closed.append(connection)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def handler() -> Echo:
    return Echo()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(handler: Echo, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemotingServer]:
    monkeypatch.setattr(remoting_server, "LOOK_SECONDS", 0.02)
    server = RemotingServer("test-remoting", handler, clock=clock)
    yield server
    server.close()


@pytest.fixture
def connect(server: RemotingServer) -> Iterator[Callable[[], RemotingClient]]:
    address = server.listen(Address("127.0.0.1", 0))
    server.start()
    with contextlib.ExitStack() as stack:
        yield lambda: RemotingClient(stack.enter_context(socket.create_connection(address)))


Connect = Callable[[], RemotingClient]


def test_commands_are_answered_with_their_opaque_in_both_forms(connect: Connect) -> None:
    client = connect()
    client.send(Command(ECHO, {"a": "1"}, b"x", opaque=7), Command(ECHO, {"b": "2"}, b"y", opaque=-1, is_binary=True))

    first, second = client.receive(), client.receive()

    assert (first.opaque, first.fields, first.body, first.flag) == (7, {"a": "1"}, b"x", ANSWER)
    assert (second.opaque, second.fields, second.body, second.is_binary) == (-1, {"b": "2"}, b"y", False)


def test_requests_that_reuse_the_opaque_of_an_open_one_are_each_answered(connect: Connect, handler: Echo) -> None:
    client, other = connect(), connect()
    client.send(Command(LATER, body=b"1", opaque=7), Command(ECHO, body=b"2", opaque=7))
    other.send(Command(ECHO, body=b"3", opaque=7))
    assert (client.receive().body, other.receive().body) == (b"2", b"3")
    wait_until(lambda: len(handler.later) == 1, "the request")
    handler.later[0]()
    last = client.receive()
    assert (last.opaque, last.body) == (7, b"1")
    assert [connection.request_count for connection in handler.opened] == [0, 0]


def test_answers_come_in_any_order_and_from_any_thread(connect: Connect, handler: Echo) -> None:
    client = connect()
    client.send(Command(LATER, body=b"1", opaque=1), Command(ECHO, body=b"2", opaque=2))
    assert client.receive().opaque == 2
    wait_until(lambda: len(handler.later) == 1, "the request")
    thread = threading.Thread(target=handler.later[0])
    thread.start()
    thread.join()

    assert client.receive().body == b"1"
    assert handler.opened[0].request_count == 0


def test_answers_that_are_given_together_go_out_in_one_write(
    connect: Connect, handler: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    client.send(Command(LATER, opaque=1), Command(LATER, opaque=2, flag=ONEWAY), Command(LATER, opaque=3))
    wait_until(lambda: len(handler.came) == 3, "the requests")
    written: list[int] = []
    write = Connection._write

    def counted(self: Connection, pieces: list[bytes]) -> None:
        written.append(len(pieces))
        write(self, pieces)

    monkeypatch.setattr(Connection, "_write", counted)
    handler.opened[0].answer_all([(request, request.answer(body=b"b")) for request in handler.came])

    assert [client.receive().opaque, client.receive().opaque] == [1, 3]
    assert written == [4]  # two heads and two bodies
    assert handler.opened[0].request_count == 0


def test_a_turn_ends_when_all_that_came_with_it_was_begun(handler: Echo) -> None:
    turns: list[int] = []
    server = RemotingServer("test-remoting", handler, turn_ended=lambda: turns.append(len(handler.came)))
    address = server.listen(Address("127.0.0.1", 0))
    with contextlib.closing(server), socket.create_connection(address) as connected:
        connected.sendall(b"".join(encode(Command(SILENT, opaque=number)) for number in range(40)))
        server.start()
        wait_until(lambda: turns[-1:] == [40], "the end of the turn")
    assert set(turns) == {0, 40}


def test_a_request_that_wants_no_answer_gets_none(connect: Connect) -> None:
    client = connect()
    client.send(Command(ECHO, opaque=1, flag=ONEWAY), Command(ECHO, opaque=2))
    assert client.receive().opaque == 2


def test_a_frame_in_pieces_is_one_command(connect: Connect) -> None:
    client = connect()
    data = encode(Command(ECHO, {"a": "b"}, bytes(300_000), opaque=5))
    for at in range(0, len(data), 70_001):
        client.socket.sendall(data[at : at + 70_001])
    assert client.receive().body == bytes(300_000)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2[]", b"\0\0\0\6\0\0\0\2[]", b"\xff" * 64])
def test_bytes_that_are_no_frame_close_their_own_connection_only(connect: Connect, garbage: bytes) -> None:
    other, bad = connect(), connect()
    bad.send(Command(ECHO, opaque=1))
    assert bad.receive().opaque == 1
    bad.socket.sendall(garbage)

    assert bad.is_closed()
    other.send(Command(ECHO, opaque=2))
    assert other.receive().opaque == 2


def test_a_handler_that_fails_costs_its_own_connection_only(connect: Connect, handler: Echo) -> None:
    other, bad = connect(), connect()
    bad.send(Command(BROKEN))

    assert bad.is_closed()
    wait_until(lambda: len(handler.closed) == 1, "on_close")
    other.send(Command(ECHO, opaque=2))
    assert other.receive().opaque == 2


def test_a_client_is_asked_and_its_answer_reaches_who_asked(connect: Connect, handler: Echo, clock: Clock) -> None:
    client = connect()
    client.send(Command(ECHO, opaque=1))
    client.receive()
    answers: list[Command | None] = []
    connection = handler.opened[0]
    connection.ask(Command(307, {"consumerGroup": "g"}), 5, answers.append)
    connection.ask(Command(309), 5, answers.append)
    first, second = client.receive(), client.receive()
    assert (first.code, first.fields, second.code, first.opaque != second.opaque) == (
        *(307, {"consumerGroup": "g"}),
        *(309, True),
    )

    client.send(second.answer(body=b"second"), first.answer(body=b"first"), second.answer(body=b"again"))
    wait_until(lambda: len(answers) == 2, "both answers")
    assert [each and each.body for each in answers] == [b"second", b"first"]

    connection.ask(Command(307), 5, answers.append)
    clock.now += 6
    wait_until(lambda: len(answers) == 3, "the end of its time")
    connection.ask(Command(307), 5, answers.append)
    client.socket.close()
    wait_until(lambda: len(answers) == 4, "the end of the connection")
    connection.ask(Command(307), 5, answers.append)
    assert answers[2:] == [None, None, None]


def test_a_client_is_told_something_without_an_answer(connect: Connect, handler: Echo) -> None:
    client = connect()
    client.send(Command(ECHO))
    client.receive()
    handler.opened[0].tell(Command(40, {"consumerGroup": "g"}))
    told = client.receive()
    assert (told.code, told.fields, told.is_oneway, told.is_answer) == (40, {"consumerGroup": "g"}, True, False)


def test_an_idle_connection_ends_after_two_minutes_and_a_busy_one_stays(
    connect: Connect, handler: Echo, clock: Clock
) -> None:
    idle, busy = connect(), connect()
    for client in (idle, busy):
        client.send(Command(ECHO))
        client.receive()
    clock.now += IDLE_SECONDS_MAX - 1
    busy.send(Command(ECHO))
    busy.receive()
    clock.now += 2

    assert idle.is_closed()
    busy.send(Command(ECHO, opaque=3))
    assert busy.receive().opaque == 3
    assert len(handler.closed) == 1


def test_a_frame_that_is_not_whole_in_time_ends_its_connection(
    connect: Connect, server: RemotingServer, clock: Clock
) -> None:
    client = connect()
    client.send(Command(ECHO))
    client.receive()
    data = encode(Command(ECHO, body=bytes(100)))
    client.socket.sendall(data[:20])
    wait_until(lambda: server.incoming_bytes == 20, "its begin")
    for at in range(20, 24):
        clock.now += FRAME_SECONDS_MAX / 4 + 1
        with contextlib.suppress(ConnectionError):
            client.socket.sendall(data[at : at + 1])
    assert client.is_closed()


def test_of_all_that_is_no_command_yet_the_connection_with_most_of_it_is_closed(
    connect: Connect, server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "INCOMING_BYTES_MAX", 1 << 20)
    large, other = encode(Command(ECHO, body=bytes(800_000))), encode(Command(ECHO, body=bytes(400_000)))
    hog, second, small = connect(), connect(), connect()
    hog.socket.sendall(large[:-1])
    wait_until(lambda: server.incoming_bytes == len(large) - 1, "the first frame")
    second.socket.sendall(other[:-1])

    assert hog.is_closed()
    small.send(Command(ECHO, opaque=1))
    assert small.receive().opaque == 1
    second.socket.sendall(other[-1:])
    assert len(second.receive().body) == 400_000
    wait_until(lambda: server.incoming_bytes == 0, "nothing is counted")


@pytest.mark.parametrize("after", [b"\xff" * 64, b"\0\0\0\2[]"])
def test_what_a_broken_connection_sent_is_counted_no_longer(
    connect: Connect, server: RemotingServer, after: bytes
) -> None:
    data = encode(Command(ECHO, body=bytes(300_000)))
    for _ in range(20):
        bad = connect()
        bad.socket.sendall(data[:-1])
        wait_until(lambda: server.incoming_bytes == len(data) - 1, "its begin")
        bad.socket.sendall(data[-1:] + after)
        bad.receive()
        assert bad.is_closed()
        wait_until(lambda: server.incoming_bytes == 0, "nothing is counted")
    failing = connect()
    failing.send(Command(BROKEN), Command(ECHO, body=bytes(100_000)))
    assert failing.is_closed()
    wait_until(lambda: server.incoming_bytes == 0, "nothing is counted")


def test_many_small_requests_of_one_read_do_not_make_answers_without_limit(
    connect: Connect, server: RemotingServer, handler: Echo
) -> None:
    client, other = connect(), connect()
    client.socket.sendall(b"".join(encode(Command(LARGE, opaque=number)) for number in range(1_000)))
    wait_until(lambda: handler.came, "the first requests")
    other.send(Command(ECHO, opaque=1))
    assert other.receive().opaque == 1
    # What the sockets of both sides take comes on top.
    assert len(handler.came) < 100
    assert [client.receive().opaque for _ in range(1_000)] == list(range(1_000))
    assert len(handler.came) == 1_001


def test_commands_that_were_held_go_on_when_answers_come_from_another_thread(connect: Connect, handler: Echo) -> None:
    def has_later(number: int) -> bool:
        return len(handler.later) > number

    client = connect()
    body = bytes(8 << 20)
    threading.Thread(target=client.send, args=[Command(LATER, body=body, opaque=number) for number in range(6)]).start()
    wait_until(lambda: len(handler.later) == 4, "as many as there is room for")
    for number in range(6):
        wait_until(partial(has_later, number), "the next request")
        handler.later[number]()
        assert client.receive().opaque == number


def test_a_client_that_leaves_requests_to_it_without_limit_is_closed(
    connect: Connect, handler: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "OUTGOING_BYTES_LIMIT", 16 << 20)
    client = connect()
    client.send(Command(ECHO))
    client.receive()
    for _ in range(40):
        handler.opened[0].tell(Command(40, body=bytes(1 << 20)))
    wait_until(lambda: len(handler.closed) == 1, "its end")
    handler.opened[0].tell(Command(40))


def test_a_callback_that_fails_ends_no_other_connection(connect: Connect, handler: Echo, clock: Clock) -> None:
    def fail(answer: Command | None) -> None:
        raise RuntimeError("a bug")

    client, other = connect(), connect()
    client.send(Command(ECHO))
    client.receive()
    handler.opened[0].ask(Command(307), 5, fail)
    client.send(client.receive().answer())
    handler.opened[0].ask(Command(307), 5, fail)
    clock.now += 6
    client.receive()
    client.send(Command(ECHO, opaque=2))
    assert client.receive().opaque == 2
    handler.opened[0].ask(Command(307), 60, fail)
    client.socket.close()
    wait_until(lambda: len(handler.closed) == 1, "its end")
    other.send(Command(ECHO, opaque=3))
    assert other.receive().opaque == 3


def test_no_more_is_read_from_a_client_that_takes_no_answers_and_it_is_closed(
    connect: Connect, handler: Echo, clock: Clock
) -> None:
    client = connect()
    count = 3 * OUTGOING_BYTES_MAX // (1 << 20)
    sent = b"".join(encode(Command(LARGE, opaque=number)) for number in range(count))
    client.socket.sendall(sent)
    wait_until(lambda: handler.came, "a request")
    many = encode(Command(SILENT, body=bytes(1 << 20)))
    client.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        for _ in range(64):
            client.socket.sendall(many)
    clock.now += STALL_SECONDS_MAX + 1
    wait_until(lambda: len(handler.closed) == 1, "its end")


def test_no_more_is_read_from_a_client_with_too_many_requests_until_some_are_answered(
    connect: Connect, handler: Echo
) -> None:
    client = connect()
    for number in range(REQUEST_COUNT_MAX):
        client.send(Command(LATER, opaque=number))
    wait_until(lambda: len(handler.later) == REQUEST_COUNT_MAX, "as many as are taken")
    for _ in range(8):
        client.send(Command(ECHO, opaque=-1, body=bytes(100_000)))
    other = connect()
    other.send(Command(ECHO, opaque=-2))  # a turn of the server later
    other.receive()
    assert handler.opened[0].request_count == REQUEST_COUNT_MAX
    assert [each for each in handler.came if each.opaque == -1] == []
    for answer in handler.later:
        answer()
    opaques = [client.receive().opaque for _ in range(REQUEST_COUNT_MAX + 8)]
    assert sorted(opaques) == [-1] * 8 + list(range(REQUEST_COUNT_MAX))


def test_a_large_answer_arrives_whole_behind_others(connect: Connect) -> None:
    client = connect()
    client.send(*(Command(LARGE, opaque=number) for number in range(12)), Command(ECHO, opaque=99))
    assert [(client.receive().opaque) for _ in range(13)] == [*range(12), 99]


def test_connections_beyond_the_limit_are_closed_and_others_stay(
    connect: Connect, server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "CONNECTION_COUNT_MAX", 2)
    first, second = connect(), connect()
    wait_until(lambda: server.connection_count == 2, "two connections")
    third = connect()
    assert third.is_closed()
    for client in (first, second):
        client.send(Command(ECHO, opaque=1))
        assert client.receive().opaque == 1


def test_connections_leave_descriptors_to_files_and_to_other_ports(
    connect: Connect, server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = connect()
    first.send(Command(ECHO))
    first.receive()
    # A new socket has a higher number than three quarters of these.
    monkeypatch.setattr(remoting_server, "open_file_limit", first.socket.fileno, raising=False)
    assert connect().is_closed()
    first.send(Command(ECHO, opaque=1))
    assert first.receive().opaque == 1
    assert server.connection_count == 1


def test_one_address_leaves_connections_to_others(
    connect: Connect, server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "CONNECTION_COUNT_MAX", 8)
    clients = [connect() for _ in range(6)]
    wait_until(lambda: server.connection_count == 6, "three quarters of eight")
    assert connect().is_closed()
    clients[0].send(Command(ECHO, opaque=1))
    assert clients[0].receive().opaque == 1


def test_a_fast_producer_is_slowed_down_and_stays_connected(
    connect: Connect, server: RemotingServer, handler: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer makes room for one request, while its client sends as fast as it is read."""
    monkeypatch.setattr(remoting_server, "REQUEST_COUNT_MAX", 4)
    most_bytes, count = 0, 20_000
    client = connect()
    data = encode(Command(LATER, body=bytes(1_000)))
    send_beside(client, data * count)
    wait_until(lambda: len(handler.later) == 4, "the first requests")
    for number in range(500):
        handler.later[number]()
        client.receive()
        wait_until(partial(lambda least: len(handler.later) >= least, number + 5), "the next request")
        most_bytes = max(most_bytes, server.incoming_bytes)
    assert most_bytes < 2 * READ_BYTES
    assert not handler.closed


def test_fields_of_a_header_count_as_much_as_a_body(connect: Connect, handler: Echo) -> None:
    client = connect()
    fields = {"junk": "x" * 1_000_000}
    frames = [encode(Command(LATER, fields, opaque=number)) for number in range(80)]
    send_beside(client, b"".join(frames))
    wait_until(lambda: len(handler.later) >= 33, "as many as there is room for")
    other = connect()
    other.send(Command(ECHO))  # turns of the server later
    other.receive()
    assert len(handler.later) <= REQUEST_BYTES_MAX // 1_000_000 + 1


@pytest.mark.parametrize("memory_bytes", [None, 16 << 20])
def test_requests_of_one_address_share_the_room_of_all_connections(
    connect: Connect,
    server: RemotingServer,
    handler: Echo,
    monkeypatch: pytest.MonkeyPatch,
    memory_bytes: int | None,
) -> None:
    """The room is a number, and a part of the memory where that is less."""
    if memory_bytes is None:
        monkeypatch.setattr(remoting_server, "ALL_REQUEST_BYTES_MAX", 4 << 20)
    else:
        monkeypatch.setattr(remoting_server, "ROOM_BYTES_MIN", 0)
        monkeypatch.setattr(server, "memory_bytes", memory_bytes)
    first, second = connect(), connect()
    first.send(*(Command(LATER, body=bytes(1 << 20), opaque=number) for number in range(3)))
    wait_until(lambda: len(handler.later) == 3, "three quarters of the room")
    second.send(Command(LATER, opaque=9))
    wait_until(lambda: server.incoming_bytes > 0, "the request of the other connection, which waits")
    assert len(handler.later) == 3
    handler.later[0]()
    wait_until(lambda: len(handler.later) == 4, "that request")
    for answer in handler.later[1:]:
        answer()
    assert second.receive().opaque == 9
    wait_until(lambda: server.request_bytes == 0, "nothing is counted")


def test_requests_of_a_connection_that_ended_are_counted_no_longer(
    connect: Connect, server: RemotingServer, handler: Echo
) -> None:
    client = connect()
    client.send(Command(LATER, body=bytes(1 << 20)))
    wait_until(lambda: len(handler.later) == 1, "a request")
    client.socket.close()
    wait_until(lambda: len(handler.closed) == 1, "its end")
    assert server.request_bytes == 0
    handler.later[0]()
    assert server.request_bytes == 0


def test_of_bytes_that_are_no_command_the_address_with_most_of_them_loses_a_connection(
    connect: Connect, server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "INCOMING_BYTES_MAX", 1_200_000)
    large = connect()
    address = large.socket.getpeername()
    data = encode(Command(ECHO, body=bytes(400_000)))
    large.socket.sendall(data[:-1])
    with contextlib.ExitStack() as stack:
        many = [
            RemotingClient(stack.enter_context(socket.create_connection(address, source_address=("127.0.0.2", 0))))
            for _ in range(3)
        ]
        for client in many:
            client.socket.sendall(data[:-100_000])
        wait_until(lambda: server.connection_count == 3, "one of them is closed")
    large.socket.sendall(data[-1:])
    assert len(large.receive().body) == 400_000


def send_beside(client: RemotingClient, data: bytes) -> None:
    """Send it from another thread, as far as the server takes it."""

    def send() -> None:
        with contextlib.suppress(OSError):
            client.socket.sendall(data)

    threading.Thread(target=send, daemon=True).start()


def test_five_hundred_idle_connections_cost_no_thread(connect: Connect, server: RemotingServer) -> None:
    first = connect()
    first.send(Command(ECHO))
    first.receive()
    threads = threading.active_count()
    clients = [connect() for _ in range(500)]
    wait_until(lambda: server.connection_count == 501, "all of them")
    clients[250].send(Command(ECHO, opaque=4))
    assert clients[250].receive().opaque == 4
    assert threading.active_count() <= threads  # one of a test before may end meanwhile


def test_a_server_that_is_closed_leaves_nothing_open(handler: Echo) -> None:
    server = RemotingServer("test-closing", handler)
    address = server.listen(Address("127.0.0.1", 0))
    server.start()
    client = RemotingClient(socket.create_connection(address))
    client.send(Command(LATER, opaque=1))
    wait_until(lambda: len(handler.later) == 1, "the request")
    server.close()

    assert client.is_closed()
    client.socket.close()
    handler.later[0]()  # an answer that comes too late goes nowhere
    assert len(handler.closed) == 1
    assert "test-closing" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


class TestTls:
    @pytest.fixture
    def contexts(self, tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        authority = Authority(tmp_path)
        files = authority.issue("server", "localhost")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(files.certificate, files.key)
        client = ssl.create_default_context(cafile=str(authority.path))
        return server, client

    def test_a_port_takes_tls_and_plain_connections(
        self, handler: Echo, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
    ) -> None:
        with contextlib.closing(RemotingServer("test-tls", handler, lambda: contexts[0])) as server:
            address = server.listen(Address("127.0.0.1", 0))
            server.start()
            plain = RemotingClient(socket.create_connection(address))
            secret = RemotingClient(
                contexts[1].wrap_socket(socket.create_connection(address), server_hostname="localhost")
            )
            with plain.socket, secret.socket:
                plain.send(Command(ECHO, opaque=1))
                assert plain.receive().opaque == 1
                for number in range(3):
                    secret.send(Command(ECHO, body=bytes(400_000), opaque=number))
                    assert (secret.receive().body, number) == (bytes(400_000), number)
                of_plain, of_secret = handler.opened
                assert of_plain.is_private  # both ends are on this machine
                of_plain.peer = of_plain.local = Address("::ffff:127.0.0.1", 5)
                assert of_plain.is_private
                of_plain.peer = of_secret.peer = Address("192.0.2.1", 5)
                assert (of_plain.is_private, of_secret.is_private) == (False, True)

    def test_a_server_for_tls_alone_tells_plain_connections_so_and_one_without_a_certificate_closes_tls(
        self, handler: Echo, contexts: tuple[ssl.SSLContext, ssl.SSLContext], connect: Connect
    ) -> None:
        without = connect()
        without.socket.sendall(b"\x16\x03\x01\x00\x05hello")
        assert without.is_closed()
        with contextlib.closing(RemotingServer("test-tls", handler, lambda: contexts[0], tls_only=True)) as server:
            address = server.listen(Address("127.0.0.1", 0))
            server.start()
            plain = RemotingClient(socket.create_connection(address))
            broken = RemotingClient(socket.create_connection(address))
            with plain.socket, broken.socket:
                plain.send(Command(ECHO, opaque=1))
                told = plain.receive()
                assert (told.opaque, told.code) == (1, 16)
                assert "takes TLS only" in told.remark
                assert plain.is_closed()
                broken.socket.sendall(b"\x16\x03\x01\x00\x05hello")
                with contextlib.suppress(ConnectionError):
                    while broken.socket.recv(100):
                        pass
        assert handler.came == []

    def test_a_client_without_the_certificate_that_is_wanted_is_closed_and_one_with_it_is_known_by_it(
        self, handler: Echo, tmp_path: Path
    ) -> None:
        authority, other = Authority(tmp_path), Authority(tmp_path / "other")
        own = authority.issue("server", "localhost")
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_context.load_cert_chain(own.certificate, own.key)
        server_context.load_verify_locations(authority.path)
        server_context.verify_mode = ssl.CERT_REQUIRED
        clock = Clock()
        made = RemotingServer("test-tls", handler, lambda: server_context, tls_only=True, clock=clock)
        with contextlib.closing(made) as server:
            address = server.listen(Address("127.0.0.1", 0))
            server.start()
            for files in (None, other.issue("client", "client.example")):
                context = ssl.create_default_context(cafile=str(authority.path))
                if files is not None:
                    context.load_cert_chain(files.certificate, files.key)
                with (
                    socket.create_connection(address) as plain,
                    pytest.raises((ssl.SSLError, ConnectionError)) as refused,
                ):
                    asking = RemotingClient(context.wrap_socket(plain, server_hostname="localhost"))
                    asking.receive()
                assert "alert" in str(refused.value).lower()  # the last words of TLS reach the client
            files = authority.issue("client", "client.example")
            context = ssl.create_default_context(cafile=str(authority.path))
            context.load_cert_chain(files.certificate, files.key)
            known = RemotingClient(context.wrap_socket(socket.create_connection(address), server_hostname="localhost"))
            with known.socket:
                assert known.ask(Command(ECHO, opaque=3)).opaque == 3
                (connection,) = server._connections.values()
                assert connection.certificate is not None
                assert names_of(connection.certificate) == {"client.example"}
                end = clock.now + CERTIFIED_SECONDS_MAX
                while clock.now < end - IDLE_SECONDS_MAX:
                    clock.now += IDLE_SECONDS_MAX - 1
                    assert known.ask(Command(ECHO, opaque=3)).opaque == 3
                clock.now = end + 1
                assert known.is_closed()
        assert {each.opaque for each in handler.came} == {3}

    def test_a_connection_whose_client_said_its_last_over_tls_takes_nothing_more(
        self, handler: Echo, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
    ) -> None:
        with contextlib.closing(RemotingServer("test-tls", handler, lambda: contexts[0])) as server:
            address = server.listen(Address("127.0.0.1", 0))
            server.start()
            plain = socket.create_connection(address)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = contexts[1].wrap_bio(incoming, outgoing, server_hostname="localhost")
            with plain:
                plain.settimeout(WAIT_SECONDS_MAX)
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        plain.sendall(outgoing.read())
                        incoming.write(plain.recv(1 << 16))
                tls.write(encode(Command(ECHO, opaque=1)))
                with contextlib.suppress(ssl.SSLError):
                    tls.unwrap()
                plain.sendall(outgoing.read())
                with contextlib.suppress(ConnectionError):
                    while plain.recv(1 << 16):
                        pass
                wait_until(lambda: len(handler.closed) == 1, "its end")
        assert [each.opaque for each in handler.came] == [1]


def test_connections_that_never_read_held_four_mebibytes_each(
    connect: Connect, server: RemotingServer, handler: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers that a client did not take had a limit for each connection, and none over all of them."""
    monkeypatch.setattr(remoting_server, "ALL_OUTGOING_BYTES_MAX", 6 << 20)
    clients = [connect() for _ in range(12)]
    for client in clients:
        client.send(*[Command(LARGE, opaque=number) for number in range(40)])
    wait_until(lambda: server.outgoing_bytes > 2 << 20, "answers wait")
    address = clients[0].socket.getpeername()
    with socket.create_connection(address, source_address=("127.0.0.2", 0)) as connected:
        other = RemotingClient(connected)
        for number in range(40):
            other.send(Command(LARGE, opaque=number))
            assert other.receive().opaque == number
    assert server.outgoing_bytes <= 6 << 20
    for client in clients:
        client.socket.close()
    wait_until(lambda: server.outgoing_bytes == 0, "nothing waits")


def test_answers_that_come_late_cost_the_connection_with_most_of_them(
    connect: Connect, server: RemotingServer, handler: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "ALL_OUTGOING_BYTES_MAX", 16 << 20)
    greedy, modest = connect(), connect()
    for client, count in ((greedy, 24), (modest, 1)):
        client.send(*[Command(LATER, body=bytes(1 << 20), opaque=number) for number in range(count)])
    wait_until(lambda: len(handler.later) == 25, "all requests")
    for answer in handler.later:
        answer()
    wait_until(lambda: server.connection_count == 1, "one is closed")
    assert modest.receive().opaque == 0
    assert server.outgoing_bytes <= 16 << 20


def test_bad_frames_of_a_client_filled_the_log(
    connect: Connect, server: RemotingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with structlog.testing.capture_logs() as lines:
        for _ in range(30):
            client = connect()
            client.socket.sendall(b"\xff" * 64)
            assert client.is_closed()
    assert len([line for line in lines if line["event"] == "remoting.bad_frame"]) == 10


PROXIED = b"PROXY TCP4 10.9.8.7 10.1.0.1 51234 10911\r\n"


@contextlib.contextmanager
def proxied(server: RemotingServer) -> Iterator[Address]:
    try:
        address = server.listen(Address("127.0.0.1", 0))
        server.start()
        yield address
    finally:
        server.close()


def proxied_server(handler: Echo, tls: ssl.SSLContext | None = None) -> contextlib.AbstractContextManager[Address]:
    return proxied(RemotingServer("proxied", handler, lambda: tls, is_proxy=lambda host: host == "127.0.0.1"))


def test_a_connection_of_a_proxy_is_one_of_the_client_that_its_header_names(handler: Echo) -> None:
    frame = encode(Command(ECHO, {"n": "1"}, opaque=1))
    with proxied_server(handler) as address:
        for pieces in (
            [PROXIED + frame],
            [PROXIED[:5], PROXIED[5:], frame[:3], frame[3:]],
            [PROXIED[:-1], b"\n" + frame],
        ):
            with contextlib.closing(socket.create_connection(address)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for piece in pieces:
                    connection.sendall(piece)
                assert RemotingClient(connection).receive().fields == {"n": "1"}
        with contextlib.closing(socket.create_connection(address)) as connection:
            connection.sendall(b"PROXY UNKNOWN\r\n" + frame)
            assert RemotingClient(connection).receive().fields == {"n": "1"}
    assert [opened.peer for opened in handler.opened[:3]] == [Address("10.9.8.7", 51234)] * 3
    assert handler.opened[3].peer.host == "127.0.0.1"
    assert not any(opened.is_private for opened in handler.opened)  # the client of a proxy is elsewhere


def test_a_connection_of_a_proxy_without_a_header_is_closed_before_any_command(handler: Echo) -> None:
    with proxied_server(handler) as address:
        with contextlib.closing(socket.create_connection(address)) as connection:
            connection.sendall(encode(Command(ECHO, opaque=1)))
            assert connection.recv(1) == b""
        with contextlib.closing(socket.create_connection(address)) as connection:
            connection.sendall(PROXIED + PROXIED)  # one is enough: the second is a frame that is too long
            assert connection.recv(1) == b""
    assert handler.came == []


def test_a_client_behind_a_proxy_has_the_connections_of_one_address(
    handler: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "CONNECTION_COUNT_MAX", 8)
    frame = encode(Command(ECHO, {"n": "1"}, opaque=1))
    with proxied_server(handler) as address, contextlib.ExitStack() as stack:

        def connect(header: bytes = PROXIED) -> socket.socket:
            connection = stack.enter_context(contextlib.closing(socket.create_connection(address)))
            connection.sendall(header + frame)
            return connection

        served = [connect() for _ in range(6)]  # three quarters of eight
        for connection in served:
            assert RemotingClient(connection).receive().fields == {"n": "1"}
        assert RemotingClient(connect()).is_closed()
        other = connect(PROXIED.replace(b"10.9.8.7", b"10.9.8.8"))
        assert RemotingClient(other).receive().fields == {"n": "1"}
        served[0].close()
        wait_until(lambda: len(handler.closed) == 2, "the ends of the refused and of the closed one")
        assert RemotingClient(connect()).receive().fields == {"n": "1"}


def test_a_header_that_is_not_whole_in_time_ends_its_connection(
    handler: Echo, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "LOOK_SECONDS", 0.02)
    server = RemotingServer("proxied", handler, is_proxy=lambda host: True, clock=clock)
    with proxied(server) as address, contextlib.closing(socket.create_connection(address)) as connection:
        connection.sendall(PROXIED[:9])
        wait_until(lambda: [one._header for one in server._connections.values()] == [PROXIED[:9]], "its begin")
        clock.now += FRAME_SECONDS_MAX + 1
        assert connection.recv(1) == b""
    assert handler.came == []


def test_a_header_of_anybody_else_is_no_header(handler: Echo, server: RemotingServer) -> None:
    address = server.listen(Address("127.0.0.1", 0))
    server.start()
    with contextlib.closing(socket.create_connection(address)) as connection:
        connection.sendall(PROXIED + encode(Command(ECHO, opaque=1)))
        assert connection.recv(1) == b""
    assert handler.came == []


def test_tls_begins_behind_the_header_of_a_proxy(handler: Echo, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with proxied_server(handler, context) as address:
        plain = socket.create_connection(address)
        plain.sendall(PROXIED)
        trusting = ssl.create_default_context(cafile=str(authority.path))
        with contextlib.closing(trusting.wrap_socket(plain, server_hostname="127.0.0.1")) as connection:
            connection.sendall(encode(Command(ECHO, {"n": "2"}, opaque=1)))
            assert RemotingClient(connection).receive().fields == {"n": "2"}
    assert [opened.peer for opened in handler.opened] == [Address("10.9.8.7", 51234)]
