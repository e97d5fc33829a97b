"""PulledBytes: the answer to a pull whose messages stay bytes, on their way through a process that does not look at them.

A consumer service that was given `shown_as` puts the messages behind the other fields of its PullMessagesResponse. So the
few bytes at the begin say everything but the messages, and the rest is field 1 of any answer that has messages there, or field
8, records. Answers of an older service, which does not know `shown_as`, are decoded as before.
"""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from reput.consumer.v1 import consumer_service_pb2 as pb
from services.rpcs import Rpc
from services.rpcs.consumer import PULL_MESSAGES

_MESSAGES_TAG, RECORDS_TAG = 0x0A, 0x42
_TAGS = (_MESSAGES_TAG, RECORDS_TAG)
_VARINT, _BYTES = 0, 2
_VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class PulledBytes:
    """See the top of this file.

    Attributes:
        head: the answer; without messages and records, if it has `shown_as`.
        messages: the messages, or records, each with its tag and length; empty if `head` has them.
    """

    head: pb.PullMessagesResponse
    messages: memoryview

    @classmethod
    def FromString(cls, answer: bytes, /) -> "PulledBytes":  # noqa: N802  # as a message's
        """The answer of a service; DecodeError when it is none."""
        end = _head_size(answer)
        if end:
            head = pb.PullMessagesResponse.FromString(answer[:end])
            if head.shown_as:
                return cls(head, memoryview(answer)[end:])
        return cls(pb.PullMessagesResponse.FromString(answer), memoryview(b""))


# A pull whose messages stay bytes if the request has `shown_as`.
PULL_BYTES = Rpc(PULL_MESSAGES.path, pb.PullMessagesRequest, PulledBytes)


def spans_of(messages: memoryview) -> list[tuple[int, int, int]]:
    """Where each message, or record, begins with its tag, where its own bytes begin, and where they end."""
    spans: list[tuple[int, int, int]] = []
    at = 0
    while at < len(messages):
        size_bytes, begin = _varint(messages, at + 1)
        if messages[at] not in _TAGS or begin + size_bytes > len(messages):
            raise DecodeError("what stands behind the fields of an answer are no messages")
        spans.append((at, begin, begin + size_bytes))
        at = begin + size_bytes
    return spans


def _head_size(answer: bytes) -> int:
    """Bytes of the fields before the first message, or record."""
    at = 0
    while at < len(answer) and answer[at] not in _TAGS:
        kind = answer[at] & 7
        if answer[at] > 0x7F or kind not in (_VARINT, _BYTES):
            return 0  # not a field that this release knows
        value, at = _varint(answer, at + 1)
        at += value if kind == _BYTES else 0
    return at if at <= len(answer) else 0


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        value |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return value, place + 1
    raise DecodeError("a number does not end")
