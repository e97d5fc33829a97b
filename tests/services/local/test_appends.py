"""Appends between real clients and servers on a socket: single ones, and streams with requests sent ahead."""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.local import client as appends
from services.local.client import AppendClient, LocalStream, Peer
from services.local.wire import GREETING, HEAD
from services.status import StatusError, from_status
from store.errors import InvalidMessageError, ServiceUnavailableError
from tests.services.local.support import WAIT_SECONDS_MAX, listening, serving
from tests.support.waiting import wait_until


@pytest.fixture
def client(address, server) -> Iterator[AppendClient]:
    made = AppendClient(address)
    yield made
    made.close()


def begun(client: AppendClient, requests: Iterator[bytes]) -> LocalStream | None:
    """A stream whose requests a thread gives, as fast as they come."""
    stream = client.open_stream()

    def give() -> None:
        for request in requests:
            stream.give(request)
        stream.give(None)

    if stream is not None:
        threading.Thread(target=give, daemon=True).start()
    return stream


class Requests:
    """A stream's requests, given one by one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def give(self, *requests: bytes | None) -> None:
        for request in requests:
            self._queue.put(request)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._queue.get, None)


class TestStreams:
    """AppendMessageStream."""

    def test_answers_come_in_order_also_when_requests_are_sent_ahead(self, client, log):
        requests = [b"%d " % number + os.urandom(number * 37 % 9_000) for number in range(300)]

        assert list(begun(client, iter(requests))) == [b"stream " + request[:100] for request in requests]
        assert log.requests == requests

    def test_a_refused_request_is_an_answer_and_the_stream_goes_on(self, client, log):
        given = Requests()
        answers = iter(begun(client, iter(given)))
        given.give(b"a")
        assert next(answers) == b"stream a"
        log.error = InvalidMessageError("message 3 is bad", field="body", index=3)
        given.give(b"b")
        assert next(answers) == b"error message 3 is bad"
        log.error = None
        given.give(b"c", None)

        assert list(answers) == [b"stream c"]

    def test_a_bug_ends_the_stream_and_what_was_sent_ahead_is_not_appended(self, client, log):
        log.release.clear()
        answers = iter(begun(client, iter([b"a", b"b", b"c"])))
        log.wait_for_one()
        log.error = ZeroDivisionError("a bug")
        log.release.set()
        with pytest.raises(StatusError, match="AppendMessageStream failed unexpectedly"):
            next(answers)

        assert log.requests == [b"a"]

    def test_a_stream_without_requests_ends_at_once(self, client, server):
        assert list(begun(client, iter([]))) == []
        wait_until(lambda: server.connection_count == 0, "the connection to end")

    def test_cancelled_it_ends_at_once_while_the_log_works(self, client, log):
        log.release.clear()
        stream = begun(client, iter([b"a"]))
        log.wait_for_one()
        stream.cancel()
        with pytest.raises(ServiceUnavailableError):
            list(stream)
        stream.cancel()  # and again, when nothing is left to cancel

    def test_an_idle_one_is_told_when_the_commitlog_goes(self, client, server):
        given = Requests()
        answers = iter(begun(client, iter(given)))
        given.give(b"a")
        assert next(answers) == b"stream a"
        server.close()
        with pytest.raises(ServiceUnavailableError):
            next(answers)
        given.give(None)

    def test_a_peer_that_hangs_is_found_out(self, address, path, monkeypatch):
        """Greets and reads, and does nothing more, as a stopped process; then the door is silent too."""
        monkeypatch.setattr(appends, "KEEPALIVE_SECONDS", 1)
        monkeypatch.setattr(Peer.lives, "__defaults__", (0.05,))
        with listening(path) as listener, ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(lambda: (one := listener.accept()[0], one.sendall(GREETING))[0])
            stream = begun(AppendClient(address), iter([b"a"]))
            with accepted.result(WAIT_SECONDS_MAX), pytest.raises(ServiceUnavailableError):
                list(stream)

    def test_its_descriptors_and_threads_come_back(self, client, server):
        def held() -> tuple[int, int]:
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        before = held()
        for number in range(20):
            stream = begun(client, iter([b"a", b"b"]))
            if number % 2:
                list(stream)
            else:
                for _ in stream:
                    break
        wait_until(lambda: held() <= before, "descriptors and threads to come back")

    @pytest.mark.parametrize("take_bytes", [1, HEAD.size + 1, 100_000])
    def test_a_request_of_which_a_part_was_taken_is_not_sent_again(self, address, path, take_bytes):
        connections = []

        def take_parts(listener: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connections.append(connection)
                    connection.sendall(GREETING)
                    left = take_bytes
                    while left:
                        left -= len(connection.recv(left))
                    connection.close()

        with listening(path) as listener:
            taking = threading.Thread(target=take_parts, args=(listener,))
            taking.start()
            with pytest.raises(ServiceUnavailableError):
                list(begun(AppendClient(address), iter([bytes(1_000_000)])))
            listener.shutdown(socket.SHUT_RDWR)
            taking.join()

        assert len(connections) == 1

    def test_without_a_socket_or_a_greeting_there_is_none(self, address, path):
        assert begun(AppendClient(address), iter([b"x"])) is None
        with listening(path):
            assert begun(AppendClient(address), iter([b"x"])) is None


class TestBoth:
    """Streams and single appends at one commitlog."""

    def test_more_connections_than_are_served(self, address, path, log, work):
        count_max = 4
        log.release.clear()
        client = AppendClient(address)
        with serving(path, log, work, connection_count_max=count_max) as server:
            streams = [begun(client, iter([b"x"])) for _ in range(count_max)]
            for _ in streams:
                log.wait_for_one()
            refused = []
            for _ in range(count_max):
                other = AppendClient(address)
                refused += [other.append(b"y", WAIT_SECONDS_MAX), begun(AppendClient(address), iter([b"y"]))]

            assert refused == [None] * 2 * count_max
            assert server.connection_count == count_max
            log.release.set()
            assert [list(stream) for stream in streams] == [[b"stream x"]] * count_max
            wait_until(lambda: server.connection_count == 0, "room")
            assert AppendClient(address).append(b"z", WAIT_SECONDS_MAX) == b"unary z"

        assert log.requests == [b"x"] * count_max + [b"z"]

    def test_a_clean_stop_waits_for_what_is_under_way_and_takes_no_more(self, client, log, work):
        log.release.clear()
        given = Requests()
        answers = iter(begun(client, iter(given)))
        given.give(b"under way", b"too late")
        log.wait_for_one()
        work.stopping.set()

        assert not work.wait_until_done(0.0)
        log.release.set()
        assert work.wait_until_done(WAIT_SECONDS_MAX)
        assert next(answers) == b"stream under way"
        with pytest.raises(StatusError) as raised:
            next(answers)
        assert type(from_status(raised.value.status)) is ServiceUnavailableError
        with pytest.raises(StatusError) as raised:
            client.append(b"too late as well", WAIT_SECONDS_MAX)
        assert type(from_status(raised.value.status)) is ServiceUnavailableError
        assert log.requests == [b"under way"]
        given.give(None)
