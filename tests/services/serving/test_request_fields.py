"""A request of very many tiny fields is refused before protobuf makes objects of them."""

import pytest
from google.protobuf.message import DecodeError

from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from services.serving.request_fields import FIELD_COUNT_MAX, check_field_count
from store.errors import InvalidArgumentError
from tests.support.stack import new_message

EMPTY_MESSAGE = b"\x0a\x00"


@pytest.mark.parametrize(
    "field", [EMPTY_MESSAGE, b"\x10\x01", b"\x9d\x06abcd", b"\x99\x06abcdefgh", b"\x0a\x01x"], ids=bytes.hex
)
def test_a_request_of_a_million_tiny_fields_is_refused_before_it_is_parsed(field: bytes) -> None:
    check_field_count(field * FIELD_COUNT_MAX, "/m")
    with pytest.raises(InvalidArgumentError, match="more than 131,072 fields"):
        check_field_count(field * (FIELD_COUNT_MAX + 1), "/m")


def test_a_request_of_few_large_messages_passes_the_count_of_fields() -> None:
    request = log_pb.AppendMessagesRequest(messages=[new_message("T", bytes(1 << 20)) for _ in range(4)])
    check_field_count(request.SerializeToString(), "/m")


@pytest.mark.parametrize("damaged", [b"\xff" * 600_000, b"\x0b" * 600_000, b"\x0a\xff\xff\xff\x7f" + bytes(600_000)])
def test_what_protobuf_refuses_is_left_to_protobuf(damaged: bytes) -> None:
    check_field_count(damaged, "/m")
    with pytest.raises(DecodeError):
        log_pb.AppendMessagesRequest.FromString(damaged)
