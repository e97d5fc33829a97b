"""LocalCalls: calls over a local socket of a service, answered in a callback, as `later.py` makes them over gRPC.

The request is written by the caller's thread, and one thread takes the answers (services/local/under_way.py). There is a bound:
a call that finds no room is made over gRPC, and so is one that the socket does not take. Both ends together need a third of the
CPU time of a call over gRPC.
"""

import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from services import status
from services.calling.later import Done
from services.local.client import LocalClient
from services.local.under_way import CallsUnderWay, Ended, Outcome
from services.local.wire import LocalMethod
from services.observing import tracing
from store.errors import ServiceUnavailableError, StoreError

# Calls under way; more go over gRPC.
CALL_COUNT_MAX = 8

Answer = TypeVar("Answer")


class LocalCalls:
    """Calls one service; thread-safe.

    Args:
        local: to one of its sockets.
        call_count_max: calls under way at the same time.
    """

    def __init__(self, local: LocalClient, call_count_max: int = CALL_COUNT_MAX) -> None:
        self._service = local.service
        self._under_way = CallsUnderWay(local, call_count_max)

    def call(
        self,
        method: LocalMethod,
        request: Message,
        parse: Callable[[bytes], Answer],
        timeout_seconds: float,
        done: Done[Answer],
        over_grpc: Callable[[float], object],
    ) -> None:
        """Make one attempt, and give its outcome to `done`; see `call_later`.

        Args:
            method: what is called.
            request: its request.
            parse: makes the answer of its bytes; DecodeError when they are none.
            timeout_seconds: for the call.
            done: gets the answer or the typed error, once, in the thread of the answers. It must not block.
            over_grpc: makes the call over gRPC instead, with so many seconds left; it must not block.
        """
        began = time.monotonic()

        def ended(outcome: Outcome) -> None:
            if outcome is None:
                over_grpc(timeout_seconds - (time.monotonic() - began))
            elif isinstance(outcome, bytes):
                done(self._parsed(parse, outcome))
            elif isinstance(outcome, status.StatusError):
                done(status.from_status(outcome.status))
            else:
                done(outcome)

        context = copy_context() if tracing.is_on() else None
        told: Ended = ended if context is None else lambda outcome: context.run(ended, outcome)
        if not self._under_way.begin(method, request.SerializeToString(), timeout_seconds, told):
            over_grpc(timeout_seconds)

    def close(self) -> None:
        """Take no more calls; later ones go over gRPC. Those under way end by themselves."""
        self._under_way.close()

    def _parsed(self, parse: Callable[[bytes], Answer], answer: bytes) -> Answer | StoreError:
        try:
            return parse(answer)
        except DecodeError as error:
            return ServiceUnavailableError(f"{self._service} sent what is no answer: {error}", service=self._service)
