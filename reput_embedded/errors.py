"""The errors that only an embedded store has; all others are those of `reput_client.errors`."""

from deploy.hosts import ChildDiedError
from reput_client.errors import (
    FailedPreconditionError,
    InternalError,
    ReputClientError,
    UnavailableError,
    error_of_status,
)
from services.status import to_status
from store.errors import StoreError


class StoreClosedError(FailedPreconditionError):
    """The store was closed, or its services have ended."""


class ForkedStoreError(FailedPreconditionError):
    """The store was opened by a process of which this one is a fork."""


def client_error(error: Exception, where: object) -> ReputClientError:
    """Why a store could not be opened, or has ended, as an error of `reput_client`."""
    cause = error.error if isinstance(error, ChildDiedError) else error
    if isinstance(cause, StoreError):
        return error_of_status(to_status(cause))
    if isinstance(error, ChildDiedError):
        return UnavailableError(f"the store {where} could not be served: {error}")
    return InternalError(f"the store {where} could not be opened: {error!r}")
