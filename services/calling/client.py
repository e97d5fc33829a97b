"""ServiceClient: calls one service by typed RPCs (services/rpcs); errors are raised as the classes that the service raised.

How a call is made follows from two tables. `services/methods.py` says whether it may be sent again, and which shape it has.
`services/local/wire.py` says whether the services of one machine have a socket for it: then the socket is used, because both
ends together need a third of the CPU time of a call over gRPC. gRPC is used where there is no socket, no room, or a broken
connection that the table allows to repeat; a caller sees no difference.

    call     waits for the answer in the caller's thread
    later    one attempt, answered in a callback; no thread waits
    follow   a stream of answers that ends only when somebody ends it
    collect, exchange   a stream of answers that ends by itself, to its end
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from typing import Any, Generic, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError

from services import retry, status
from services.calling.channel import open_channel
from services.local.client import CallsUnderWay, Ended, LocalClient, LocalStream, Outcome
from services.local.wire import LOCAL_METHODS, NOT_KNOWN, LocalMethod, LocalSocket
from services.methods import Kind, Retry
from services.observing import tracing
from services.rpcs import Answer, Request, Rpc
from services.serving.deadline import SECONDS_DEFAULT
from services.serving.tls import TlsIdentity
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

# Calls of `later` under way on a socket; more go over gRPC.
CALL_COUNT_MAX = 8
# Of a call over gRPC: how many requests and how many answers it has, as the stubs of grpcio name it.
_SHAPES = {Kind.UNARY: "unary_unary", Kind.TWO_WAY: "stream_stream", Kind.SESSION: "stream_stream"}

_log = structlog.get_logger("reput.rpc")

Result = TypeVar("Result")
# Gets the answer or the typed error, once, in any thread. It must not block.
Done: TypeAlias = Callable[[Result | StoreError], object]


class EndlessStream(Generic[Answer]):
    """A running call: iterate over its answers; `cancel` ends it from any thread.

    Args:
        call: the call of gRPC, or answers over a socket that can be cancelled.
        rpc: what was called, for errors.
        channel: kept open by the stream: a call that its caller reads does not do that.
    """

    def __init__(self, call: Any, rpc: Rpc[Any, Answer], channel: grpc.Channel) -> None:
        self._call = call
        self._rpc = rpc
        self._channel = channel

    def __iter__(self) -> Iterator[Answer]:
        """Answers, without end.

        Raises:
            StoreError: the typed error with which the stream ended; ServiceUnavailableError also after `cancel`, and
                when the server ended it normally, as it does while stopping.
        """
        service = self._rpc.service
        try:
            yield from self._call
        except grpc.RpcError as rpc_error:
            raise status.from_rpc_error(rpc_error, service) from rpc_error
        except status.StatusError as answered:
            raise status.from_status(answered.status) from None
        except DecodeError as error:
            raise _no_answer(service, error) from error
        raise ServiceUnavailableError(f"{service} ended the stream of {self._rpc.name}", service=service)

    def cancel(self) -> None:
        """End the call; a waiting iteration raises ServiceUnavailableError."""
        self._call.cancel()


class _OnSocket(Generic[Answer]):
    """The answers of a tail over a local socket."""

    def __init__(self, stream: LocalStream, rpc: Rpc[Any, Answer]) -> None:
        self._stream = stream
        self._rpc = rpc

    def __iter__(self) -> Iterator[Answer]:
        return map(self._rpc.answer_class.FromString, self._stream)

    def cancel(self) -> None:
        self._stream.cancel()


class ServiceClient:
    """See the top of this file; thread-safe.

    Args:
        service: its name: `consumer`.
        target: `HOST:PORT` or `unix:/path`.
        channel: used for all calls instead of a channel and sockets of its own.
        tls: our certificate for its own channel; None: no TLS.
        read_by_caller: see services/calling/channel.py.

    Attributes:
        service, target: as given.
        channel: for other calls to the service, such as forwarding raw bytes.
    """

    def __init__(
        self,
        service: str,
        target: str,
        channel: grpc.Channel | None = None,
        tls: TlsIdentity | None = None,
        *,
        read_by_caller: bool = False,
    ) -> None:
        self.service = service
        self.target = target
        self.channel = channel or open_channel(target, tls, read_by_caller=read_by_caller)
        self._grpc_calls: dict[Rpc[Any, Any], Any] = {}
        kinds = dict.fromkeys(method.socket for method in LocalMethod if method.service == service)
        self._sockets = {kind: LocalClient(kind, target if channel is None else "", service) for kind in kinds}
        self._under_way = {kind: CallsUnderWay(local, CALL_COUNT_MAX) for kind, local in self._sockets.items()}

    def call(self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float = SECONDS_DEFAULT) -> Answer:
        """The answer, sent again as services/methods.py and the one retry policy (services/retry.py) allow.

        Args:
            rpc: what is called, with one request and one answer.
            request: its request.
            timeout_seconds: for all attempts together.

        Raises:
            StoreError: as the service raised it; ServiceUnavailableError, DeadlineExceededError.
        """
        method = LOCAL_METHODS.get(rpc.path)
        if method is None:
            return self._call_over_grpc(rpc, request, timeout_seconds)
        return self._call_on_socket(method, rpc, request, request.SerializeToString(), timeout_seconds)

    def call_once(
        self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float = SECONDS_DEFAULT
    ) -> Answer:
        """The answer of one attempt over gRPC, whatever services/methods.py allows."""
        over_grpc = self._over_grpc(rpc)
        answer: Answer = retry.call_once(
            lambda seconds: over_grpc(request, timeout=seconds), timeout_seconds, self.service
        )
        return answer

    def later(self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float, done: Done[Answer]) -> None:
        """Make one attempt, without retries, and give its outcome to `done`.

        The request is written by the caller's thread, and one thread takes the answers (services/local/client.py). A call
        that the socket does not take is made over gRPC.

        Args:
            rpc: what is called, with one request and one answer.
            request: its request.
            timeout_seconds: for the call.
            done: gets the answer or the typed error, exactly once, and never before this function is called. It runs in
                a thread of the client, or in this thread when the call has ended already. It must not block.
                What it raises is logged.
        """
        method = LOCAL_METHODS.get(rpc.path)
        if method is None:
            self._later_over_grpc(rpc, request, timeout_seconds, done)
            return
        began = time.monotonic()

        def ended(outcome: Outcome) -> None:
            if outcome is None:
                self._later_over_grpc(rpc, request, timeout_seconds - (time.monotonic() - began), done)
            elif isinstance(outcome, bytes):
                done(self._parsed(rpc, outcome))
            elif isinstance(outcome, status.StatusError):
                done(status.from_status(outcome.status))
            else:
                done(outcome)

        context = copy_context() if tracing.is_on() else None
        told: Ended = ended if context is None else lambda outcome: context.run(ended, outcome)
        under_way = self._under_way[method.socket]
        if not under_way.begin(method, request.SerializeToString(), timeout_seconds, told):
            self._later_over_grpc(rpc, request, timeout_seconds, done)

    def follow(self, rpc: Rpc[Request, Answer], request: Request) -> EndlessStream[Answer]:
        """The stream of a tail; over gRPC it connects with its first answer."""
        method = LOCAL_METHODS.get(rpc.path)
        connection = self._sockets[method.socket].connect(is_lasting=True) if method is not None else None
        if method is None or connection is None:
            return EndlessStream(self._over_grpc(rpc)(request), rpc, self.channel)
        stream = LocalStream(connection, method)
        stream.give(request.SerializeToString())
        return EndlessStream(_OnSocket(stream, rpc), rpc, self.channel)

    def collect(
        self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float = SECONDS_DEFAULT
    ) -> list[Answer]:
        """All answers of a stream that ends by itself and may be sent again."""
        assert rpc.row.retry is Retry.SAFE, f"{rpc.path} may be carried out twice"
        over_grpc = self._over_grpc(rpc)
        return retry.call_idempotent(
            lambda seconds: list(over_grpc(request, timeout=seconds)), timeout_seconds, self.service
        )

    def exchange(
        self,
        rpc: Rpc[Request, Answer],
        requests: Iterable[Request],
        timeout_seconds: float = SECONDS_DEFAULT,
        *,
        attempt_count_max: int = retry.ATTEMPT_COUNT_MAX,
    ) -> list[Answer]:
        """All answers to a stream of requests; with more than one attempt, `requests` can be gone through again."""
        assert rpc.row.retry is Retry.SAFE, f"{rpc.path} may be carried out twice"
        over_grpc = self._over_grpc(rpc)
        return retry.call_idempotent(
            lambda seconds: list(over_grpc(iter(requests), timeout=seconds)),
            timeout_seconds,
            self.service,
            attempt_count_max=attempt_count_max,
        )

    def close(self) -> None:
        """Close the channel and the sockets; running calls of the channel end with ServiceUnavailableError."""
        for under_way in self._under_way.values():
            under_way.close()
        for local in self._sockets.values():
            local.close()
        self.channel.close()

    def socket(self, kind: LocalSocket) -> LocalClient:
        """One of its sockets, for calls that are no RPC."""
        return self._sockets[kind]

    def _call_on_socket(
        self, method: LocalMethod, rpc: Rpc[Request, Answer], request: Request, data: bytes, timeout_seconds: float
    ) -> Answer:
        """The answer over the socket, or over gRPC when nothing was done there and another attempt may help.

        `data` are the bytes of the request.
        """
        began = time.monotonic()
        try:
            answer = self._sockets[method.socket].call(method, data, timeout_seconds)
            if answer is not None:
                return rpc.answer_class.FromString(answer)
        except status.StatusError as answered:
            error = status.from_status(answered.status)
            is_unknown = error.message == NOT_KNOWN.format(method.number)
            if not (is_unknown or (method.retry is Retry.SAFE and retry.is_worth_retrying(error))):
                raise error from None
        except DecodeError as error:  # gRPC checks its answers, too, and has an error for it
            if method.retry is not Retry.SAFE:
                raise _no_answer(self.service, error) from error
        return self._call_over_grpc(rpc, request, timeout_seconds - (time.monotonic() - began))

    def _call_over_grpc(self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float) -> Answer:
        if rpc.row.retry is not Retry.SAFE:
            return self.call_once(rpc, request, timeout_seconds)
        over_grpc = self._over_grpc(rpc)
        answer: Answer = retry.call_idempotent(
            lambda seconds: over_grpc(request, timeout=seconds), timeout_seconds, self.service
        )
        return answer

    def _later_over_grpc(
        self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float, done: Done[Answer]
    ) -> None:
        call_later(self._over_grpc(rpc), request, timeout_seconds, self.service, done)

    def _over_grpc(self, rpc: Rpc[Any, Any]) -> Any:
        """What calls it on the channel."""
        call = self._grpc_calls.get(rpc)
        if call is None:
            make = getattr(self.channel, _SHAPES.get(rpc.row.kind, "unary_stream"))
            # Without `_registered_method`, as stubs have it: to register one on a channel that is closed ends the process.
            call = self._grpc_calls[rpc] = make(
                rpc.path,
                request_serializer=rpc.request_class.SerializeToString,
                response_deserializer=rpc.answer_class.FromString,
            )
        return call

    def _parsed(self, rpc: Rpc[Any, Answer], answer: bytes) -> Answer | StoreError:
        try:
            return rpc.answer_class.FromString(answer)
        except DecodeError as error:
            return _no_answer(self.service, error)


def _no_answer(service: str, error: DecodeError) -> ServiceUnavailableError:
    return ServiceUnavailableError(f"{service} sent what is no answer: {error}", service=service)


def call_later(
    method: Any, request: Any, timeout_seconds: float, service: str, done: Done[Result]
) -> Callable[[], object]:
    """Makes one attempt at a call over gRPC and gives its outcome to `done`; see ServiceClient.later.

    Args:
        method: what calls it on a channel.
        request: its request.
        timeout_seconds: for the call.
        service: the name of the called service, for error texts.
        done: gets the outcome, once.

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
