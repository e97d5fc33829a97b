"""Records of a pull as they came: the fast way and the plain one give the same."""

import random

import pytest
from google.protobuf.message import DecodeError

from gateway.shards.encoded_messages import EncodedMessages
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage


def test_records_are_the_bytes_that_came() -> None:
    sizes = [0, 1, 127, 128, 16_383, 16_384, *random.Random(1).choices(range(3_000), k=50), 3 << 20]
    frames = [bytes(random.Random(size).choices(range(256), k=min(size, 500))).ljust(size, b"r") for size in sizes]
    encoded = EncodedMessages(memoryview(pb.PullMessagesResponse(records=frames).SerializeToString()), "b")
    assert encoded.records() == b"".join(frames)
    assert list(map(bytes, encoded.records_or_messages())) == frames


def test_messages_are_no_records() -> None:
    data = pb.PullMessagesResponse(messages=[StoredMessage(topic="T")]).SerializeToString()
    assert EncodedMessages(memoryview(data), "b").records() is None


@pytest.mark.parametrize("size_bytes", [1, 2, 302])
def test_records_that_are_cut_are_refused(size_bytes: int) -> None:
    data = pb.PullMessagesResponse(records=[b"x" * 300]).SerializeToString()
    with pytest.raises(DecodeError):
        EncodedMessages(memoryview(data[:size_bytes]), "b").records()
