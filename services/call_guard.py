"""Checks before a handler runs: the same handler, of the same kind, that first asks whether its caller may.

A service without a guard has its handlers as they are: who needs none pays for none. Handlers come in the shapes that
services/interceptors.py knows; a guard that cares for requests only wraps them by itself (gateway/auth/guard.py), one that
cares for callers uses `checked`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import grpc

from services.append_pump import Pumped
from services.unary_call import AnsweredLater

HEALTH_PREFIX = "/grpc.health."


class CallGuard(Protocol):
    """Decides who may call what."""

    def guard(self, method: str, handler: Any) -> Any:
        """The handler to serve instead; it raises UnauthenticatedError or PermissionDeniedError. Called once a method."""


def checked(handler: Any, check: Callable[[Any, Any], None]) -> Any:
    """The handler, run only after `check(context, request)`; the request is None where there is more than one.

    A request is what the handler gets: a message, or bytes where the handler takes bytes.
    """
    if handler.request_streaming:
        name = "stream_stream" if handler.response_streaming else "stream_unary"
        inner = getattr(handler, name)

        def stream(requests: Any, context: grpc.ServicerContext) -> Any:
            check(context, None)
            return inner(requests, context)

        if isinstance(inner, Pumped):

            def pump(stream_pump: Any, context: grpc.ServicerContext) -> bool:
                check(context, None)
                return inner.pump(stream_pump, context)

            return handler._replace(**{name: Pumped(stream, pump)})
        return handler._replace(**{name: stream})
    name = "unary_stream" if handler.response_streaming else "unary_unary"
    inner = getattr(handler, name)
    if isinstance(inner, AnsweredLater):

        def offer(request: bytes, call: Any) -> None:
            check(call.context, request)
            inner.offer(request, call)

        return handler._replace(**{name: AnsweredLater(offer)})

    def single(request: Any, context: grpc.ServicerContext) -> Any:
        check(context, request)
        return inner(request, context)

    return handler._replace(**{name: single})


def peer_identities(context: Any) -> frozenset[str]:
    """The names in the SAN of the certificate that the caller has shown; empty without one.

    gRPC has checked the certificate before there was a call.
    """
    facts = context.auth_context()
    return frozenset(name.decode("utf-8", "replace") for name in facts.get("x509_subject_alternative_name", ()))
