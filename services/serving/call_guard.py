"""Call guards: each wraps a handler so that it first checks whether the caller may call the method.

A service without a guard serves its handlers as they are. A guard that looks at callers only uses `checked`; a guard that
also reads requests wraps the handlers itself (gateway/auth/guard.py). Handlers have the shapes that interceptors.py knows.
"""

from collections.abc import Callable
from typing import Any, Protocol

import grpc

from services.serving.calls.append_pump import Pumped
from services.serving.calls.streamed_later import StreamedLater
from services.serving.calls.unary_call import AnsweredLater


class CallGuard(Protocol):
    """Decides which callers may call which methods."""

    def guard(self, method: str, handler: Any) -> Any:
        """The handler to serve instead; it raises UnauthenticatedError or PermissionDeniedError.

        Called once for each method.
        """

    def client_of(self, method: str, context: Any) -> str:
        """The verified identity of a caller, before its request arrives; empty when there is none and none is needed.

        Args:
            method: the path of the RPC.
            context: gRPC's context of the call.

        Raises:
            UnauthenticatedError: the method needs an identity, and the call has none that is valid.
        """


def checked(handler: Any, check: Callable[[Any, Any], None]) -> Any:
    """The handler; `check(context, request)` runs before it.

    The request is what the handler gets: a message, or bytes where the handler takes bytes; None for a stream of requests.
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
                return bool(inner.pump(stream_pump, context))

            return handler._replace(**{name: Pumped(stream, pump)})
        return handler._replace(**{name: stream})
    name = "unary_stream" if handler.response_streaming else "unary_unary"
    inner = getattr(handler, name)
    if isinstance(inner, AnsweredLater | StreamedLater):

        def offer(request: bytes, call: Any) -> None:
            check(call.context, request)
            inner.offer(request, call)

        later: Any = AnsweredLater(offer) if isinstance(inner, AnsweredLater) else StreamedLater(offer, inner.refused)
        return handler._replace(**{name: later})

    def single(request: Any, context: grpc.ServicerContext) -> Any:
        check(context, request)
        return inner(request, context)

    return handler._replace(**{name: single})
