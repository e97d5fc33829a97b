"""The client's table of errors against the services' own: every reason has a class, every status arrives typed."""

import grpc
import pytest
from google.rpc import error_details_pb2

from reput_client import errors
from reput_client.errors import DETAILS_KEY, error_of_call, error_of_status
from services import status as services_status
from store import errors as store_errors


@pytest.mark.parametrize("error_class", list(services_status.CODE_BY_ERROR), ids=lambda each: each.__name__)
def test_every_error_of_the_services_arrives_as_the_class_of_its_name(
    error_class: type[store_errors.StoreError],
) -> None:
    sent = error_class("what happened", field="body", index=3)
    got = error_of_status(services_status.to_status(sent))
    expected = "InternalError" if error_class is store_errors.StoreError else error_class.__name__
    assert type(got).__name__ == expected
    assert got.message == "what happened"
    assert got.metadata == {"field": "body", "index": "3"}
    assert got.code is services_status.CODE_BY_ERROR[error_class]
    assert got.retry_after_seconds == services_status.RETRY_SECONDS_BY_ERROR.get(error_class)


@pytest.mark.parametrize("error_class", list(services_status.CODE_BY_ERROR), ids=lambda each: each.__name__)
def test_only_what_may_pass_is_tried_again(error_class: type[store_errors.StoreError]) -> None:
    code = services_status.CODE_BY_ERROR[error_class]
    passing = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}
    got = error_of_status(services_status.to_status(error_class("x")))
    assert errors.is_worth_retrying(got) == (code in passing)


def test_a_reason_of_a_newer_service_is_judged_by_its_code() -> None:
    status = services_status.to_status(store_errors.TopicNotFoundError("x", topic="T"))
    info = services_status.error_info(status)
    assert info is not None
    info.reason = "SOMETHING_NEW"
    status.details[0].Pack(info)
    got = error_of_status(status)
    assert type(got) is errors.NotFoundError
    assert got.metadata == {"topic": "T"}


def test_every_class_is_a_reput_client_error() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(classes) > 25
    assert all(issubclass(each, errors.ReputClientError) for each in classes)


class Failed(grpc.RpcError):
    """A failed call with these details."""

    def __init__(self, details: bytes) -> None:
        super().__init__()
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.NOT_FOUND

    def details(self) -> str:
        return "said by the status"

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((DETAILS_KEY, self._details),)


@pytest.mark.parametrize(
    "details",
    [b"\xff no protobuf", services_status.to_status(store_errors.DiskFullError("other")).SerializeToString()],
    ids=["damaged", "of another code"],
)
def test_details_that_are_damaged_or_contradict_the_status_are_ignored(details: bytes) -> None:
    error = error_of_call(Failed(details))

    assert type(error) is errors.NotFoundError
    assert (error.code, error.reason, error.message) == (grpc.StatusCode.NOT_FOUND, "", "said by the status")


def test_a_reason_that_this_library_does_not_know_is_kept() -> None:
    status = services_status.to_status(store_errors.DiskFullError("x"))
    info = error_details_pb2.ErrorInfo(reason="OF_A_NEWER_SERVICE", domain="reput")
    status.details[0].Pack(info)

    error = error_of_status(status)
    assert (type(error), error.reason) == (errors.ResourceBusyError, "OF_A_NEWER_SERVICE")
