"""Appends on their way to the shards' commitlogs, as the bytes that came: their messages are the same on the wire.

With one shard nothing is looked at but what may travel together (coalescer.py). With several, spread.py decides
what goes where. What a commitlog refuses arrives unchanged, trailers included.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_status import rpc_status

from gateway.answer_gate import UNANSWERED_COUNT_MAX, AnswerGate
from gateway.appends.commitlog import ALONE_COUNT_DEFAULT, Commitlog, failure_of
from gateway.appends.routes import AppendRoutes
from gateway.appends.spread import AppendSpread
from gateway.appends.spread_stream import SpreadStream, time_left_until
from services.append_pump import Pumped, StreamPump
from services.clients.appends import AppendStatusError
from services.deadline import remaining_seconds
from services.unary_call import Answerable, AnsweredLater

APPEND_SECONDS_DEFAULT = 60.0
# Deadlines further away than this are gRPC's "never".
STREAM_SECONDS_MAX = 86_400.0


@dataclass(frozen=True, slots=True)
class AppendTarget:
    """A shard's commitlog: the channel to it, and its address; without one everything goes over the channel."""

    broker_name: str
    channel: grpc.Channel
    address: str = ""


class AppendForwarder:
    """Hands on unary appends, small ones together, and append streams, each as it is.

    Args:
        channels: to the commitlogs; none: `keep` brings them.
        alone_count: requests of one shard under way at the same time that are sent alone: large ones, or with a wish of
            their own.
        targets: the commitlogs' addresses; without them, everything goes over the channels.
        routes: what chooses among several shards.
    """

    def __init__(
        self,
        channels: Sequence[grpc.Channel] = (),
        alone_count: int = ALONE_COUNT_DEFAULT,
        targets: Sequence[str] = (),
        *,
        routes: AppendRoutes | None = None,
    ) -> None:
        self._alone_count = alone_count
        self._spread = AppendSpread(routes or AppendRoutes())
        self._open: dict[AppendTarget, Commitlog] = {}
        self._only: Commitlog | None = None
        if channels:
            addresses = targets or [""] * len(channels)
            self.keep(
                [
                    AppendTarget(f"shard-{number}", channel, address)
                    for number, (channel, address) in enumerate(zip(channels, addresses, strict=True))
                ]
            )

    def keep(
        self,
        targets: Sequence[AppendTarget],
        retire: Callable[[Callable[[], None]], object] = lambda close: close(),
    ) -> None:
        """These are the shards' commitlogs now.

        Args:
            targets: one for each shard.
            retire: takes the `close` of one that is not among them any more, to be called once its calls have ended.
        """
        before = self._open
        self._open = {
            target: before.get(target)
            or Commitlog(target.channel, target.address, self._alone_count, target.broker_name)
            for target in targets
        }
        self._spread.keep({target.broker_name: commitlog for target, commitlog in self._open.items()})
        self._only = next(iter(self._open.values())) if len(self._open) == 1 else None
        for target in before.keys() - self._open.keys():
            retire(before[target].close)

    def handlers(self) -> dict[str, Any]:
        """The handlers, without serializers: requests and responses stay bytes."""
        return {
            "AppendMessages": grpc.unary_unary_rpc_method_handler(AnsweredLater(self.append_messages)),
            "AppendMessageStream": grpc.stream_stream_rpc_method_handler(
                Pumped(self.append_message_stream, self.pump_message_stream)
            ),
        }

    def append_messages(self, request: bytes, caller: Answerable) -> None:
        """One request, one response; returns at once."""
        deadline_seconds = time.monotonic() + remaining_seconds(caller, APPEND_SECONDS_DEFAULT)
        only = self._only  # once: a shard may join meanwhile
        if only is not None:
            only.send(request, deadline_seconds, caller)
        else:
            self._spread.append(request, deadline_seconds, caller)

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """A stream for a stream, over gRPC.

        gRPC takes a request from the caller only when the one before was sent on, and a response only when the one
        before was taken; and no request is taken while many of its forerunners' responses were not. So for a caller who
        does not read, no request is held here. The end of the requests is passed on; when either side gives up, so does
        the other.
        """
        gate = AnswerGate(requests)
        only = self._only  # once: a shard may join meanwhile
        call = self._spread_stream(gate, context) if only is None else self._one_stream(gate, context, only)

        def end() -> None:
            gate.close()
            call.cancel()

        if not context.add_callback(end):
            end()
        try:
            for response in call:
                yield response
                gate.answered()
        except grpc.RpcError as rpc_error:
            context.abort_with_status(rpc_status.to_status(failure_of(rpc_error).status))
        except AppendStatusError as error:
            context.abort_with_status(rpc_status.to_status(error.status))
        finally:
            end()

    def pump_message_stream(self, pump: StreamPump, context: grpc.ServicerContext) -> bool:
        """The same over the only commitlog's socket, to which gRPC's polling thread gives the requests; False without one.

        Its caller's deadline ends it like a caller who goes away.
        """
        only = self._only
        stream = only.local.open_stream() if only is not None else None
        if stream is None:
            return False
        if not context.add_callback(stream.cancel):
            stream.cancel()
        pump.start(stream.give, UNANSWERED_COUNT_MAX)
        try:
            for response in stream:
                pump.send(response)
        except AppendStatusError as error:
            context.abort_with_status(rpc_status.to_status(error.status))
        finally:
            pump.wait_until_sent()  # an end that overtook answers would take them away
        return True

    def close(self) -> None:
        """Send nothing more; who still waits is not answered."""
        for commitlog in self._open.values():
            commitlog.close()

    def _one_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext, commitlog: Commitlog) -> Any:
        remaining = context.time_remaining()
        timeout = remaining if remaining is not None and remaining < STREAM_SECONDS_MAX else None
        return commitlog.open_stream(requests, timeout)

    def _spread_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> SpreadStream:
        stream = SpreadStream(self._spread, APPEND_SECONDS_DEFAULT, time_left_until(context, STREAM_SECONDS_MAX))
        threading.Thread(target=stream.take_all, args=(requests,), name="append-stream", daemon=True).start()
        return stream
