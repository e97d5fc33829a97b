"""The frames of lookup calls: whole, in pieces, too long, and cut off."""

import socket
import threading

import pytest

from services.lookup_calls import (
    HEAD,
    READ_BYTES,
    LookupWireError,
    lookup_socket_path,
    receive_frame,
    send_frame,
)

SIZE_BYTES_MAX = 1 << 20


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    "size_bytes", [0, 1, READ_BYTES - HEAD.size, READ_BYTES, READ_BYTES * 3 + 7, SIZE_BYTES_MAX - 1]
)
def test_a_frame_arrives_as_it_was_sent(pair, size_bytes):
    ours, theirs = pair
    payload = bytes(number % 251 for number in range(size_bytes))
    sending = threading.Thread(target=send_frame, args=(theirs, 3, payload))
    sending.start()

    assert receive_frame(ours, SIZE_BYTES_MAX) == (3, payload)
    sending.join()


def test_a_frame_that_comes_byte_by_byte_is_put_together(pair):
    ours, theirs = pair
    frame = HEAD.pack(4, 2) + b"abc"

    def trickle():
        for at in range(len(frame)):
            theirs.sendall(frame[at : at + 1])

    sending = threading.Thread(target=trickle)
    sending.start()

    assert receive_frame(ours, SIZE_BYTES_MAX) == (2, b"abc")
    sending.join()


def test_a_connection_closed_between_frames_is_the_end(pair):
    ours, theirs = pair
    theirs.close()

    assert receive_frame(ours, SIZE_BYTES_MAX) is None


@pytest.mark.parametrize("cut", [1, HEAD.size - 1, HEAD.size, HEAD.size + 2])
def test_a_connection_closed_inside_a_frame_is_an_error(pair, cut):
    ours, theirs = pair
    theirs.sendall((HEAD.pack(4, 1) + b"abc")[:cut])
    theirs.close()

    with pytest.raises(LookupWireError):
        receive_frame(ours, SIZE_BYTES_MAX)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(HEAD.pack(0, 1), id="no room for its kind"),
        pytest.param(HEAD.pack(SIZE_BYTES_MAX + 1, 1), id="longer than allowed"),
        pytest.param(HEAD.pack((1 << 32) - 1, 1), id="longest that can be said"),
        pytest.param(HEAD.pack(2, 1) + b"ab", id="more than it says"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_read(pair, data):
    ours, theirs = pair
    theirs.sendall(data)

    with pytest.raises(LookupWireError):
        receive_frame(ours, SIZE_BYTES_MAX)


def test_only_a_service_on_a_unix_socket_has_a_socket_for_lookups():
    assert lookup_socket_path("unix:/run/x/index.sock") == "/run/x/index.sock.lookups"
    assert lookup_socket_path("127.0.0.1:8084") is None
    assert lookup_socket_path("[::1]:8084") is None
    assert lookup_socket_path("unix:") is None
    assert lookup_socket_path("") is None
