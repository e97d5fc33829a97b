"""The error table: every class crosses the wire and comes back as itself; strangers' become the nearest."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from services import status
from store import errors
from tests.services.loopback import commit_log_server, get_request, stub
from tests.support.waiting import WAIT_SECONDS_MAX

ALL_ERRORS = [errors.StoreError, *errors.StoreError.__subclasses__()]
OWN_ERRORS = [error for error in ALL_ERRORS if error.__module__ == "store.errors"]


@pytest.mark.parametrize("error_class", OWN_ERRORS)
def test_an_error_comes_back_as_its_own_class_with_its_metadata(error_class):
    original = error_class("what happened, 中文 too", firstOffset=0, topic="orders")

    returned = status.from_status(status.to_status(original))

    assert type(returned) is error_class
    assert returned.message == original.message
    assert returned.metadata == {"firstOffset": "0", "topic": "orders"}


def test_every_class_of_the_store_stands_in_the_table():
    assert set(OWN_ERRORS) <= set(status.CODE_BY_ERROR)


@pytest.mark.parametrize("error_class", OWN_ERRORS)
def test_a_status_carries_exactly_one_error_info(error_class):
    rich = status.to_status(error_class("text", field="topic"))

    infos = [detail for detail in rich.details if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(infos) == 1
    assert status.error_info(rich).domain == "reput"


@pytest.mark.parametrize(
    ("error_class", "code", "reason"),
    [
        (errors.InvalidMessageError, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE"),
        (errors.InvalidMessageIdError, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE_ID"),
        (errors.RecordNotFoundError, grpc.StatusCode.NOT_FOUND, "RECORD_NOT_FOUND"),
        (errors.TopicNotFoundError, grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND"),
        (errors.OffsetOutOfRangeError, grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
        (errors.RecordCorruptedError, grpc.StatusCode.DATA_LOSS, "RECORD_CORRUPTED"),
        (errors.FlushFailedError, grpc.StatusCode.UNAVAILABLE, "FLUSH_FAILED"),
        (errors.DiskFullError, grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL"),
        (errors.StoreRecoveringError, grpc.StatusCode.UNAVAILABLE, "STORE_RECOVERING"),
        (errors.StoreReadOnlyError, grpc.StatusCode.FAILED_PRECONDITION, "STORE_READ_ONLY"),
        (errors.StoreError, grpc.StatusCode.INTERNAL, "STORE_ERROR"),
    ],
)
def test_codes_and_reasons_are_those_of_the_contract(error_class, code, reason):
    rich = status.to_status(error_class("text"))

    assert rich.code == code.value[0]
    assert status.error_info(rich).reason == reason


@pytest.mark.parametrize(
    "error_class",
    [errors.DiskFullError, errors.StoreRecoveringError, errors.ResourceBusyError, errors.QuotaExceededError],
)
def test_what_passes_by_itself_says_when_to_try_again(error_class):
    rich = status.to_status(error_class("text"))

    assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in rich.details)


def test_a_subclass_that_the_table_does_not_know_travels_as_its_base():
    class HalfRecordError(errors.RecordCorruptedError):
        """A class that some module keeps to itself."""

    returned = status.from_status(status.to_status(HalfRecordError("torn", commitLogOffset=7)))

    assert type(returned) is errors.RecordCorruptedError
    assert returned.metadata == {"commitLogOffset": "7"}


def test_texts_of_any_length_and_bytes_arrive_clipped():
    """A status that is too big for HTTP/2 trailers would be dropped, and a lone surrogate is no UTF-8."""

    def refuse(request, context):
        raise errors.InvalidMessageError("\U0001f600" * 5_000, field="topic", topic="字" * 70_000, file="a\udcff")

    with commit_log_server(get_message=refuse) as server, pytest.raises(grpc.RpcError) as caught:
        stub(server).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)

    returned = status.from_rpc_error(caught.value)
    assert type(returned) is errors.InvalidMessageError
    assert returned.message.startswith("\U0001f600")
    assert len(returned.message.encode()) <= status.MESSAGE_BYTES_MAX
    assert len(returned.metadata["topic"].encode()) <= status.METADATA_VALUE_BYTES_MAX
    assert returned.metadata["file"] == "a\\udcff"


@pytest.mark.parametrize("character", ["a", "字", "\U0001f600"])
@pytest.mark.parametrize("count", [64, 85, 86, 256, 257, 300, 70_000])
def test_a_clipped_text_says_how_many_bytes_are_missing(character: str, count: int):
    text = character * count
    clipped = status.to_status(errors.StoreError("what happened", topic=text))
    returned = status.from_status(clipped).metadata["topic"]

    size_bytes = len(text.encode())
    if size_bytes <= status.METADATA_VALUE_BYTES_MAX:
        assert returned == text
        return
    kept, missing = returned.removesuffix(" bytes more").split("... ")
    assert kept == character * len(kept)
    assert len(kept.encode()) + int(missing) == size_bytes
    room = status.METADATA_VALUE_BYTES_MAX - len(returned.encode())
    assert 0 <= room < len(character.encode()) + 5  # what is missing may have fewer digits than there was room for


@pytest.mark.parametrize("begin", [0, 5, 60, 95, 96, 97, 98, 99, 990])
def test_a_clipped_list_of_numbers_holds_whole_numbers_and_says_how_many_are_missing(begin: int):
    numbers = [*range(begin, begin + 400)]
    clipped = status.to_status(errors.StoreError("what happened", writtenIndexes=",".join(map(str, numbers))))
    returned = status.from_status(clipped).metadata["writtenIndexes"]

    assert len(returned) <= status.METADATA_VALUE_BYTES_MAX
    kept, missing = returned.removesuffix(" more").split("... ")
    whole = [int(number) for number in kept.split(",")]
    assert whole == numbers[: len(whole)]
    assert len(whole) + int(missing) == len(numbers)
    assert len(whole) > 40


def test_a_number_that_is_too_long_is_clipped_as_any_text():
    returned = status.from_status(status.to_status(errors.StoreError("what happened", n="1" * 300 + ",2")))

    assert returned.metadata["n"].endswith(" bytes more")


def test_a_stranger_in_the_details_is_not_taken_for_ours():
    rich = status_pb2.Status(code=grpc.StatusCode.NOT_FOUND.value[0], message="no bucket")
    rich.details.add().Pack(error_details_pb2.ErrorInfo(reason="RECORD_NOT_FOUND", domain="storage.example"))

    assert type(status.from_status(rich)) is errors.StoreError


def test_a_service_that_is_not_there_is_unavailable_by_name():
    channel = grpc.insecure_channel("127.0.0.1:1")
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/reput.x/Y")(b"", timeout=WAIT_SECONDS_MAX)

    returned = status.from_rpc_error(caught.value, "commitlog")
    assert type(returned) is errors.ServiceUnavailableError
    assert returned.metadata["service"] == "commitlog"


def test_a_passed_deadline_is_a_deadline_error():
    def sleep(request, context):
        while context.is_active():
            context.time_remaining()
        raise errors.StoreRecoveringError("too late for anybody")

    with commit_log_server(get_message=sleep) as server, pytest.raises(grpc.RpcError) as caught:
        stub(server).GetMessage(get_request(), timeout=0.2)

    assert type(status.from_rpc_error(caught.value)) is errors.DeadlineExceededError
