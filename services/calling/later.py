"""Calls whose answer arrives in a callback, so that no thread waits for it."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from services import status
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

_log = structlog.get_logger("reput.rpc")

Answer = TypeVar("Answer")
Done: TypeAlias = Callable[[Answer | StoreError], object]


def call_later(
    method: Any, request: Message, timeout_seconds: float, service: str, done: Done[Answer]
) -> Callable[[], object]:
    """Makes one attempt at a call, without retries, and gives its outcome to `done`.

    Args:
        method: the stub's method.
        request: its request.
        timeout_seconds: for the call.
        service: the name of the called service, for error texts.
        done: gets the response or the typed error, exactly once, and never before this function is called. It runs in
            a thread of the channel, or in this thread when the call has ended already. It must not block.
            What it raises is logged.

    Returns:
        Ends the call, from any thread; `done` then gets ServiceUnavailableError. Without effect after its end.
    """
    if timeout_seconds <= 0:
        done(DeadlineExceededError(f"no time was left to call {service}: allow more time", service=service))
        return _nothing
    try:
        call = method.future(request, timeout=timeout_seconds)
    except ValueError:  # gRPC's error for a channel that is closed
        done(ServiceUnavailableError(f"the channel to {service} is closed", service=service))
        return _nothing

    def ended(call: Any) -> None:
        try:
            outcome = call.result()
        except grpc.RpcError as rpc_error:
            outcome = status.from_rpc_error(rpc_error, service)
        except grpc.FutureCancelledError:
            outcome = ServiceUnavailableError(f"the call to {service} was cancelled", service=service)
        try:
            done(outcome)
        except Exception:  # a bug; in this thread it would reach a caller whose callback has run already
            _log.exception("rpc.callback_failed", service=service)

    call.add_done_callback(ended)
    return call.cancel  # type: ignore[no-any-return]  # gRPC's stubs are not typed


def _nothing() -> None:
    """Ends a call that has ended."""
