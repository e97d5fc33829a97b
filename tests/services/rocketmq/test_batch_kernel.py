"""Batches that a kernel takes apart, compiled and uncompiled, beside those that plain code does."""

import random
import struct

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.compiled import loading
from store.format.client_batch import BatchEntry, decode_client_batch, encode_client_batch

NAME = "services.rocketmq.batch_kernel"
HEAD = message_pb2.NewMessage(topic="T", queue_id=3, flag=7).SerializeToString()


@pytest.fixture(params=["compiled", "plain"])
def kernel(request):
    found = loading.load(NAME) if request.param == "compiled" else loading.plain(NAME)
    if found is None:
        pytest.skip("the kernel is not compiled")
    return found


def room_of(kernel, data, count):
    return bytearray(kernel.room_bytes(len(data), len(HEAD), count))


def messages_of(room, size):
    return [
        (message.topic, message.queue_id, message.flag, message.body, message.wire_properties)
        for message in pb.AppendMessagesRequest.FromString(bytes(room[:size])).messages
    ]


def test_messages_of_any_size_are_those_of_the_plain_code(kernel):
    random_ = random.Random(34)
    for _ in range(60):
        sizes = [
            (random_.choice([0, 1, 127, 128, 5_000, 70_000]), random_.choice([0, 1, 127, 128, 32_767]))
            for _ in range(5)
        ]
        data = encode_client_batch([BatchEntry(7, random_.randbytes(body), b"p" * some) for body, some in sizes])
        room = room_of(kernel, data, 5)
        at, count, size = kernel.encode(data, 0, 5, 7, HEAD, room)
        assert (at, count) == (len(data), 5)
        assert messages_of(room, size) == [
            ("T", 3, 7, entry.body, entry.properties) for entry in decode_client_batch(data)
        ]


def test_the_smallest_messages_fill_the_room_and_no_more(kernel):
    data = encode_client_batch([BatchEntry(7, b"", b"")] * 1_000)
    room = room_of(kernel, data, 1_000)
    assert kernel.encode(data, 0, 1_000, 7, HEAD, room)[:2] == (len(data), 1_000)


def test_it_goes_on_where_a_part_has_ended(kernel):
    data = encode_client_batch([BatchEntry(7, b"%d" % n, b"") for n in range(5)])
    found = []
    at = 0
    while at < len(data):
        room = room_of(kernel, data, 2)
        at, count, size = kernel.encode(data, at, 2, 7, HEAD, room)
        found.append([body for *_, body, _ in messages_of(room, size)])
        assert count == len(found[-1])
    assert found == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def test_it_stops_before_a_message_of_another_flag(kernel):
    data = encode_client_batch([BatchEntry(7, b"a", b""), BatchEntry(-8, b"b", b"")])
    at, count, _ = kernel.encode(data, 0, 9, 7, HEAD, room_of(kernel, data, 2))
    assert (at, count) == (23, 1)
    assert kernel.encode(data, at, 9, -8, HEAD, room_of(kernel, data, 2))[:2] == (len(data), 1)


NUMBERS = (-1, 0, 1, 21, 23, 1 << 30, -(1 << 31), (1 << 31) - 1)


@pytest.mark.parametrize(("at", "number"), [(at, n) for at in (0, 16, 20) for n in NUMBERS if (at, n) != (16, 0)])
def test_lengths_that_disagree_are_left_to_the_plain_code(kernel, at, number):
    data = bytearray(encode_client_batch([BatchEntry(7, b"", b"pq"), BatchEntry(7, b"x", b"")]))
    field = struct.Struct(">i" if at < 20 else ">h")
    number = number if at < 20 else max(min(number, 32_767), -32_768)
    field.pack_into(data, at, number)
    assert kernel.encode(bytes(data), 0, 9, 7, HEAD, room_of(kernel, data, 2)) == (0, 0, 0)


def test_a_batch_that_is_cut_anywhere_ends_before_the_cut(kernel):
    data = encode_client_batch([BatchEntry(7, b"abc", b"KEYS\x01k\x02")] * 2)
    for size in range(len(data)):
        at, count, _ = kernel.encode(data[:size], 0, 9, 7, HEAD, room_of(kernel, data, 2))
        assert (at, count) == ((len(data) // 2, 1) if size >= len(data) // 2 else (0, 0))


def test_a_room_that_is_too_small_is_an_error_and_not_written_beyond(kernel):
    data = encode_client_batch([BatchEntry(7, b"abc", b"")])
    with pytest.raises(IndexError):
        kernel.encode(data, 0, 1, 7, HEAD, bytearray(10))
