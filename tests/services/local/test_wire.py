"""The frames of the local wire: whole, in any pieces, several at once, too long, and cut off at every byte."""

import itertools
import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.local.wire import (
    APPENDS,
    HEAD,
    LARGE_READ_BYTES,
    LOOKUPS,
    READ_BYTES,
    Frame,
    FrameReader,
    LocalMethod,
    WireError,
    pieces_of,
    send_answer,
    unsent,
)
from services.methods import Retry
from tests.support.waiting import WAIT_SECONDS_MAX

PAYLOAD_BYTES_MAX = 3 << 20
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

frames_of_any_kind = st.tuples(st.integers(0, 255), st.binary(max_size=300), st.sampled_from(["", TRACEPARENT]))


def bytes_of(frame: Frame) -> bytes:
    """A frame, by the description at the top of services/local/wire.py."""
    kind, payload, traceparent = frame
    head = len(payload).to_bytes(4, "big") + bytes([kind, 1 if traceparent else 0])
    return head + traceparent.encode() + payload


def all_frames(pieces: list[bytes], payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> list[Frame]:
    """Reads pieces as a socket would give them."""
    left = [piece for piece in pieces if piece]

    def receive(size_bytes: int, _is_begun: bool) -> bytes:
        if not left:
            return b""
        piece, left[0] = left[0][:size_bytes], left[0][size_bytes:]
        if not left[0]:
            del left[0]
        return piece

    reader = FrameReader(payload_bytes_max)
    return list(iter(lambda: reader.read(receive), None))


@given(frames_of_any_kind)
def test_a_frame_is_drawn_as_it_is_described(frame):
    assert b"".join(pieces_of(*frame)) == bytes_of(frame)


@given(frames=st.lists(frames_of_any_kind, max_size=8), cuts=st.lists(st.integers(0, 2_500), max_size=8))
def test_frames_arrive_as_they_were_sent_however_they_are_cut(frames, cuts):
    data = b"".join(map(bytes_of, frames))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})

    assert all_frames([data[begin:end] for begin, end in itertools.pairwise(places)]) == frames


@given(frames=st.lists(frames_of_any_kind, max_size=4), cuts=st.lists(st.integers(0, 2_500), max_size=8))
def test_a_reader_that_finds_nothing_there_goes_on_where_it_was(frames, cuts):
    data = b"".join(map(bytes_of, frames))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    incoming = [piece for part in pieces for piece in (None, part)]  # None: nothing is there now
    left = bytearray()

    def receive(size_bytes: int, _is_begun: bool) -> bytes:
        if not left:
            piece = incoming.pop(0) if incoming else b""
            if piece is None:
                raise BlockingIOError
            left.extend(piece)
        taken = bytes(left[:size_bytes])
        del left[:size_bytes]
        return taken

    reader = FrameReader(PAYLOAD_BYTES_MAX)
    received: list[object] = []
    while True:
        try:
            frame = reader.read(receive)
        except BlockingIOError:
            continue
        if frame is None:
            break
        received.append(frame)

    assert received == frames


@pytest.mark.parametrize("frame", [(1, b"abcdef", ""), (5, b"", ""), (4, b"abc", TRACEPARENT)], ids=repr)
@pytest.mark.parametrize("before", [b"", bytes_of((2, b"x", ""))], ids=["first", "behind another"])
def test_every_prefix_of_a_frame_is_refused_as_incomplete(frame, before):
    whole = bytes_of(frame)
    for cut in range(1, len(whole)):
        with pytest.raises(WireError, match="ended inside a frame"):
            all_frames([before + whole[:cut]])
        with pytest.raises(WireError, match="ended inside a frame"):
            all_frames([before, *(bytes([byte]) for byte in whole[:cut])])

    assert all_frames([before + whole])[-1] == frame


@pytest.mark.parametrize(
    "size_bytes", [READ_BYTES - HEAD.size, READ_BYTES, LARGE_READ_BYTES * 2 + 7, PAYLOAD_BYTES_MAX]
)
def test_a_large_frame_and_its_followers_arrive_over_a_socket(size_bytes):
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_SECONDS_MAX)
    frames = [(1, b"before", ""), (3, os.urandom(size_bytes), ""), (2, b"", ""), (2, b"after", "")]

    def send() -> None:
        for frame in frames:
            send_answer(theirs, *frame[:2])
        theirs.shutdown(socket.SHUT_WR)

    with ours, theirs:
        sending = threading.Thread(target=send)
        sending.start()
        reader = FrameReader(PAYLOAD_BYTES_MAX)
        received = list(iter(lambda: reader.read(lambda size, _is_begun: ours.recv(size)), None))
        sending.join()

    assert received == frames


def test_a_descriptor_arrives_with_its_frame_and_stays_open_here(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    ours, theirs = socket.socketpair()
    with ours, theirs, open(tmp_path / "file", "rb") as file:
        send_answer(theirs, 0, b"answer", file.fileno())
        data, fds, _, _ = socket.recv_fds(ours, 100, 1)
        with open(fds[0], "rb") as received:
            assert received.read() == b"content"
        assert os.pread(file.fileno(), 7, 0) == b"content"

    assert data == bytes_of((0, b"answer", ""))


@given(st.lists(st.binary(max_size=5), max_size=4), st.integers(0, 20))
def test_what_is_unsent_is_the_rest(pieces, sent_bytes):
    whole = b"".join(pieces)

    assert b"".join(unsent(list(pieces), sent_bytes)) == whole[sent_bytes:]


def test_the_receiver_is_told_whether_a_frame_was_begun():
    told = []
    whole = bytes_of((1, b"abc", ""))
    pieces = iter([whole[:2], whole[2:7], whole[7:], b""])

    def receive(_size_bytes: int, is_begun: bool) -> bytes:
        told.append(is_begun)
        return next(pieces)

    reader = FrameReader(PAYLOAD_BYTES_MAX)

    assert reader.read(receive) == (1, b"abc", "")
    assert reader.read(receive) is None
    assert told == [False, True, True, False]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big") + b"\1\0", id="longer than allowed"),
        pytest.param(b"\xff\xff\xff\xff\1\0", id="longest that can be said"),
        pytest.param(b"\0\0\0\1\1\2x", id="unknown flag"),
        pytest.param(b"\0\0\0\1\1\xffx", id="all flags"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
def test_what_is_no_frame_is_refused_before_its_payload_is_read(data):
    with pytest.raises(WireError, match="no frame"):
        all_frames([data])


def test_the_longest_frame_that_is_allowed_is_read():
    assert all_frames([bytes_of((1, b"12345", ""))], payload_bytes_max=5) == [(1, b"12345", "")]


def test_only_a_service_on_a_unix_socket_has_local_sockets():
    assert APPENDS.path("unix:/run/x/commitlog.sock") == "/run/x/commitlog.sock.appends"
    assert LOOKUPS.path("unix:/run/x/index.sock") == "/run/x/index.sock.lookups"
    for address in ("127.0.0.1:8084", "[::1]:8084", "unix:", ""):
        assert LOOKUPS.path(address) is None


def test_only_appends_are_never_made_again_and_no_two_methods_have_one_number():
    assert {method for method in LocalMethod if method.retry is Retry.NEVER} == {
        LocalMethod.APPEND,
        LocalMethod.APPEND_ON_STREAM,
        LocalMethod.APPEND_INTERNAL,
        LocalMethod.POP_MESSAGES,
        LocalMethod.END_TRANSACTIONS,
    }
    assert len({method.number for method in LocalMethod}) == len(LocalMethod)
