"""The frames of append calls: whole, in any pieces, several at once, too long, and cut off."""

import itertools
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.append_calls import (
    HEAD,
    LARGE_READ_BYTES,
    READ_BYTES,
    AppendWireError,
    FrameReader,
    append_socket_path,
    send_frame,
)

SIZE_BYTES_MAX = 3 << 20


def frame_of(kind: int, payload: bytes) -> bytes:
    """A frame, by the description at the top of services/append_calls.py."""
    return (len(payload) + 1).to_bytes(4, "big") + bytes([kind]) + payload


def reader_of(pieces: list[bytes], size_bytes_max: int = SIZE_BYTES_MAX) -> FrameReader:
    """Reads pieces as a socket would give them."""
    left = [piece for piece in pieces if piece]

    def receive(size_bytes: int, _is_begun: bool) -> bytes:
        if not left:
            return b""
        piece, left[0] = left[0][:size_bytes], left[0][size_bytes:]
        if not left[0]:
            del left[0]
        return piece

    return FrameReader(receive, size_bytes_max)


def all_frames(reader: FrameReader) -> list[tuple[int, bytes]]:
    frames = []
    while (frame := reader.read()) is not None:
        frames.append(frame)
    return frames


@given(
    frames=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=8),
    cuts=st.lists(st.integers(0, 2_500), max_size=8),
)
def test_frames_arrive_as_they_were_sent_however_they_are_cut(frames, cuts):
    data = b"".join(frame_of(*frame) for frame in frames)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]

    assert all_frames(reader_of(pieces)) == frames


@pytest.mark.parametrize("size_bytes", [READ_BYTES - HEAD.size, READ_BYTES, LARGE_READ_BYTES * 2 + 7, SIZE_BYTES_MAX])
def test_a_large_frame_and_its_followers_arrive_over_a_socket(size_bytes):
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    payload = bytes(number % 251 for number in range(size_bytes))

    def send():
        for kind, sent in ((1, b"before"), (3, payload), (2, b""), (2, b"after")):
            send_frame(theirs, kind, sent)
        theirs.shutdown(socket.SHUT_WR)

    with ours, theirs:
        sending = threading.Thread(target=send)
        sending.start()
        frames = all_frames(FrameReader(lambda size, _is_begun: ours.recv(size), SIZE_BYTES_MAX))
        sending.join()

    assert frames == [(1, b"before"), (3, payload), (2, b""), (2, b"after")]


def test_whoever_receives_is_told_whether_a_frame_was_begun():
    told = []
    pieces = iter([frame_of(1, b"abc")[:2], frame_of(1, b"abc")[2:6], b"bc", b""])

    def receive(_size_bytes: int, is_begun: bool) -> bytes:
        told.append(is_begun)
        return next(pieces)

    reader = FrameReader(receive, SIZE_BYTES_MAX)

    assert reader.read() == (1, b"abc")
    assert reader.read() is None
    assert told == [False, True, True, False]


@pytest.mark.parametrize("cut", [1, HEAD.size - 1, HEAD.size, HEAD.size + 2])
def test_an_end_inside_a_frame_is_an_error(cut):
    reader = reader_of([frame_of(2, b"x") + frame_of(1, b"abc")[:cut]])

    assert reader.read() == (2, b"x")
    with pytest.raises(AppendWireError):
        reader.read()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0\0\0\0\1", id="no room for its kind"),
        pytest.param((SIZE_BYTES_MAX + 2).to_bytes(4, "big") + b"\1", id="longer than allowed"),
        pytest.param(b"\xff\xff\xff\xff\1", id="longest that can be said"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_read(data):
    with pytest.raises(AppendWireError, match="a frame of"):
        reader_of([data]).read()


def test_only_a_commitlog_on_a_unix_socket_has_a_socket_for_appends():
    assert append_socket_path("unix:/run/x/commitlog.sock") == "/run/x/commitlog.sock.appends"
    assert append_socket_path("127.0.0.1:8082") is None
    assert append_socket_path("unix:") is None
    assert append_socket_path("") is None
