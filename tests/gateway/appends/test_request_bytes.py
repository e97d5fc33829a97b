"""Appends put together and split as bytes mean what protobuf says they mean; damaged ones are left alone."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.appends.request_bytes import (
    SMALL_MESSAGE_COUNT_MAX,
    SMALL_REQUEST_BYTES_MAX,
    SmallAppend,
    read_small_append,
    split_results,
)
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

bodies = st.lists(st.binary(max_size=300), min_size=1, max_size=4)
requests = st.builds(
    lambda bodies, flush: pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic="t", body=body) for body in bodies], flush=flush
    ),
    bodies,
    st.sampled_from(sorted(message_pb2.FlushMode.values())),
)
responses = st.builds(
    lambda keys: pb.AppendMessagesResponse(results=[message_pb2.AppendResult(unique_key=key) for key in keys]),
    st.lists(st.text(max_size=200), min_size=1, max_size=4),
)


@given(requests)
def test_a_request_is_read_as_protobuf_reads_it(request):
    assert read_small_append(request.SerializeToString()) == SmallAppend(len(request.messages), request.flush)


@given(st.lists(requests, min_size=1, max_size=5), st.sampled_from(sorted(message_pb2.FlushMode.values())))
def test_requests_put_together_are_one_with_the_messages_of_all(parts, flush):
    for part in parts:
        part.flush = flush
    together = pb.AppendMessagesRequest.FromString(b"".join(part.SerializeToString() for part in parts))

    assert list(together.messages) == [message for part in parts for message in part.messages]
    assert together.flush == flush


@given(st.lists(responses, min_size=1, max_size=5))
def test_a_response_is_split_into_the_ones_it_is_made_of(parts):
    whole = pb.AppendMessagesResponse(results=[result for part in parts for result in part.results])

    split = split_results(whole.SerializeToString(), [len(part.results) for part in parts])

    assert [pb.AppendMessagesResponse.FromString(part) for part in split] == parts


@given(responses, st.integers(-1, 1))
def test_a_response_with_another_count_of_receipts_is_not_split(response, difference):
    counts = [1] * (len(response.results) + difference)

    assert (split_results(response.SerializeToString(), counts) is None) == (difference != 0)


@given(st.binary(max_size=40))
@example(b"\x0a\xff\xff\xff\xff\x0f")  # a length of 4 GiB
@example(b"\x0a\xff\xff\xff\xff\xff\x01")  # a length that does not end
@example(b"\x0a")
@example(b"\x10")
def test_whatever_the_bytes_nothing_is_read_behind_their_end(data):
    small = read_small_append(data)
    counts = [1]
    split = split_results(data, counts)

    if small is not None:  # then its outer fields are whole: protobuf counts the same, unless it dislikes an inner one
        try:
            request = pb.AppendMessagesRequest.FromString(data)
        except Exception:
            return
        assert small == SmallAppend(len(request.messages), request.flush)
    assert split is None or split == [data]


@given(requests, st.data())
def test_a_request_cut_short_is_left_alone_or_shorter(request, data):
    whole = request.SerializeToString()
    cut = data.draw(st.integers(0, len(whole) - 1))

    small = read_small_append(whole[:cut])

    assert small is None or small.message_count <= len(request.messages)


MESSAGE = message_pb2.NewMessage(topic="t", body=b"x")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        pb.AppendMessagesRequest(flush=1).SerializeToString(),
        pb.AppendMessagesRequest(messages=[MESSAGE], deduplicate=True).SerializeToString(),
        pb.AppendMessagesRequest(messages=[MESSAGE]).SerializeToString() + b"\x10\x04",
        pb.AppendMessagesRequest(messages=[MESSAGE]).SerializeToString() + b"\x10\x81\x00",
        pb.AppendMessagesRequest(messages=[MESSAGE]).SerializeToString() + b"\x78\x01",
        pb.AppendMessagesRequest(messages=[MESSAGE] * (SMALL_MESSAGE_COUNT_MAX + 1)).SerializeToString(),
        pb.AppendMessagesRequest(
            messages=[message_pb2.NewMessage(topic="t", body=bytes(SMALL_REQUEST_BYTES_MAX))]
        ).SerializeToString(),
    ],
    ids=["empty", "no message", "deduplicate", "flush 4", "long varint", "unknown field", "many", "large"],
)
def test_what_is_not_everybodys_wish_travels_alone(request_bytes):
    assert read_small_append(request_bytes) is None
