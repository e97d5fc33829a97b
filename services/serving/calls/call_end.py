"""How a call ends: the status of an error, and the name of the code that a call ended with.

A handler just raises. A `StoreError` becomes its status (services/status.py). An RpcError from a call to another service is
passed on as the error that it carried. Anything else is a bug: it is logged with its traceback and answered INTERNAL.
"""

import logging
from collections import defaultdict
from typing import Any

import grpc
import structlog

from services import status
from store.errors import InvalidArgumentError, StoreError

# By number; a number without a name is UNKNOWN.
CODE_NAMES = defaultdict(lambda: "UNKNOWN", {code.value[0]: code.name for code in grpc.StatusCode})

_log = structlog.get_logger("reput.rpc")
_stdlib_log = logging.getLogger("reput.rpc")


def code_name_of(context: Any) -> str:
    """The name of the status that the call has now; OK when it has none yet and when it has a plain answer."""
    code = context.code()
    if code is None:
        return "OK" if context.is_active() else "CANCELLED"  # by its caller or its deadline
    return code.name if isinstance(code, grpc.StatusCode) else CODE_NAMES[int(code)]


def end_with(error: Exception, context: Any, method: str) -> None:
    """End the call with the status of an error; never returns."""
    if context.code() is not None:
        raise error  # the handler ended the call itself: `context.abort` leaves it this way
    is_typed = isinstance(error, StoreError) or (isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call))
    if not is_typed and not context.is_active():
        raise error  # the caller is gone; that explains the failure
    status.raise_status(context, as_store_error(error, method))


def as_store_error(error: Exception, method: str) -> StoreError:
    """The typed error that a caller is told; a bug is logged here."""
    if isinstance(error, StoreError):
        if _stdlib_log.isEnabledFor(logging.DEBUG):
            _log.debug("rpc.refused", method=method, reason=status.reason_of(type(error)), error=error.message[:200])
        return error
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return status.from_rpc_error(error)
    _log.error("rpc.failed", method=method, exc_info=error)
    return StoreError(f"{method} failed unexpectedly; see the log of the service for the cause")


def no_request(method: str) -> InvalidArgumentError:
    """For a call of one request that ended without it."""
    return InvalidArgumentError(f"{method} takes one request, and none arrived", field="request")
