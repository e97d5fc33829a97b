"""Lookups: short idempotent reads over a local socket (services/local/wire.py), with gRPC as the other way.

A query needs one or two of them, so they decide how long it takes. The same servicer methods answer as over gRPC.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from services import retry, status
from services.local.client import LocalClient
from services.local.wire import NOT_KNOWN, LocalMethod

Answer = TypeVar("Answer", bound=Message)


def call_lookup(
    local: LocalClient,
    method: LocalMethod,
    request: Message,
    answer_class: type[Answer],
    over_grpc: Callable[..., Any],
    timeout_seconds: float,
) -> Answer:
    """The answer of an idempotent method, over the local socket or gRPC.

    gRPC is used, under the one retry policy (services/retry.py), when the local call was not possible, when its status
    says that another attempt may help, or when the service is older than the method.

    Args:
        local: to the service.
        method: a method that is Retry.SAFE.
        request: its request.
        answer_class: the class of its answer.
        over_grpc: the stub's method.
        timeout_seconds: for all attempts together.

    Raises:
        StoreError: as the service raised it; ServiceUnavailableError, DeadlineExceededError.
    """
    began = time.monotonic()
    try:
        answer = local.call(method, request.SerializeToString(), timeout_seconds)
        if answer is not None:
            return answer_class.FromString(answer)
    except status.StatusError as answered:
        error = status.from_status(answered.status)
        is_unknown = error.message == NOT_KNOWN.format(method.number)
        if not (is_unknown or retry.is_worth_retrying(error)):
            raise error from None
    except DecodeError:
        pass  # gRPC checks its answers, too, and has an error for it
    timeout_seconds -= time.monotonic() - began
    response: Answer = retry.call_idempotent(
        lambda seconds: over_grpc(request, timeout=seconds), timeout_seconds, local.service
    )
    return response
