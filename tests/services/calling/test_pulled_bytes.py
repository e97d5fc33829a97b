"""PulledBytes: the answers of new and of older consumer services."""

import pytest
from google.protobuf.message import DecodeError

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.pulled_bytes import PulledBytes, spans_of

MESSAGES = [StoredMessage(topic="t" * 20, body=bytes(size)) for size in (0, 1, 200, 20_000)]
HEAD = pb.PullMessagesResponse(
    next_offset=1 << 62, min_offset=1, max_offset=1 << 40, status=gateway_pb.PULL_STATUS_FOUND, shown_as="名" * 50
)
CONTENT = pb.PullMessagesResponse(messages=MESSAGES).SerializeToString()


def test_the_messages_of_an_answer_that_says_so_stay_bytes() -> None:
    pulled = PulledBytes.FromString(HEAD.SerializeToString() + CONTENT)
    assert pulled.head == HEAD
    assert pulled.messages == CONTENT
    spans = spans_of(pulled.messages)
    assert [StoredMessage.FromString(pulled.messages[begin:end]) for _, begin, end in spans] == MESSAGES
    assert [begin for begin, _, _ in spans] == [0, *(end for _, _, end in spans[:-1])]


def test_an_answer_without_messages_is_all_head() -> None:
    assert PulledBytes.FromString(HEAD.SerializeToString()) == PulledBytes(HEAD, memoryview(b""))
    assert PulledBytes.FromString(b"") == PulledBytes(pb.PullMessagesResponse(), memoryview(b""))


def test_the_answer_of_an_older_service_is_decoded() -> None:
    older = pb.PullMessagesResponse(messages=MESSAGES, next_offset=4, status=gateway_pb.PULL_STATUS_FOUND)
    assert PulledBytes.FromString(older.SerializeToString()) == PulledBytes(older, memoryview(b""))


@pytest.mark.parametrize("data", [b"\x10", b"\x32\x05ab", b"\x10\x80", b"\x10" + b"\xff" * 11, b"\x0a\x05ab", b"\x07"])
def test_bytes_that_are_no_answer_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        PulledBytes.FromString(data)


@pytest.mark.parametrize("data", [CONTENT[:-1], CONTENT + b"\x10\x01", b"\x0a"])
def test_bytes_that_are_no_messages_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        spans_of(memoryview(data))
