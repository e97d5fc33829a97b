"""Forwards appends to the shards' commitlogs as the bytes received: both contracts have the same messages on the wire.

With one shard, only the fields are read that decide on batches (coalescer.py). With several, spread.py chooses the shard
of each message. The caller gets a commitlog's status unchanged, trailers included.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import grpc
from grpc_status import rpc_status

from gateway.appends.backpressure import UNANSWERED_COUNT_MAX, Backpressure
from gateway.appends.commitlog import (
    ALONE_COUNT_DEFAULT,
    Commitlog,
    CommitlogGroup,
    LeaderWaits,
    failure_of,
    with_retry_info,
)
from gateway.appends.routes import AppendRoutes
from gateway.appends.spread import AppendSpread, SpreadStream, time_left_until
from services.methods import APPEND_SECONDS
from services.serving.calls.append_pump import Pumped, StreamPump
from services.serving.calls.unary_call import Answerable, AnsweredLater
from services.serving.deadline import remaining_seconds
from services.status import StatusError

# Deadlines further away than this are gRPC's "never".
STREAM_SECONDS_MAX = 86_400.0


@dataclass(frozen=True, slots=True)
class AppendTarget:
    """A shard's commitlog: the channel to it and its address; with an empty address the channel is the only way."""

    broker_name: str
    channel: grpc.Channel
    address: str = ""


class AppendForwarder:
    """Forwards unary appends, small ones in batches, and append streams.

    Args:
        channels: the channels to the commitlogs; none: `keep` gives them.
        alone_count: requests of one shard sent alone at the same time: large ones, or with options of their own.
        targets: the commitlogs' addresses; without them, the channels are the only way.
        routes: chooses among several shards.
        leaders: which replica of a shard leads; None: no shard has replicas.
    """

    def __init__(
        self,
        channels: Sequence[grpc.Channel] = (),
        alone_count: int = ALONE_COUNT_DEFAULT,
        targets: Sequence[str] = (),
        *,
        routes: AppendRoutes | None = None,
        leaders: LeaderWaits | None = None,
    ) -> None:
        self._group = None if leaders is None else CommitlogGroup(leaders)
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
        """Set the shards' commitlogs.

        Args:
            targets: one for each shard.
            retire: gets the `close` of a commitlog that is no longer among them, to call it when its calls have ended.
        """
        before = self._open
        self._open = {
            target: before.get(target)
            or Commitlog(target.channel, target.address, self._alone_count, target.broker_name, self._group)
            for target in targets
        }
        by_name = {target.broker_name: commitlog for target, commitlog in self._open.items()}
        if self._group is not None:
            self._group.keep(by_name)
        self._spread.keep(by_name)
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
        deadline_seconds = time.monotonic() + remaining_seconds(caller, APPEND_SECONDS)
        only = self._only  # once: a shard may join meanwhile
        if only is not None:
            only.send(request, deadline_seconds, caller)
        else:
            self._spread.append(request, deadline_seconds, caller)

    def append_to(self, broker_name: str, request: bytes, caller: Answerable) -> None:
        """One request to the shard of this name, whatever the routes of its topics say; returns at once.

        Raises:
            BrokerNotFoundError: it is not known.
        """
        self._spread.send_to(broker_name, request, time.monotonic() + remaining_seconds(caller, APPEND_SECONDS), caller)

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """A stream for a stream, over gRPC.

        gRPC reads a request only when the previous one was sent on, and a response only when the previous one was read.
        No request is read while many earlier ones have unread responses (backpressure.py). So no requests pile up here
        for a caller that does not read. The end of the requests is passed on; when either side cancels, the other side
        is cancelled, too.
        """
        held = Backpressure(requests)
        only = self._only  # once: a shard may join meanwhile
        call = self._spread_stream(held, context) if only is None else self._one_stream(held, context, only)

        def end() -> None:
            held.close()
            call.cancel()

        if not context.add_callback(end):
            end()
        try:
            for response in call:
                yield response
                held.answered()
        except grpc.RpcError as rpc_error:
            context.abort_with_status(rpc_status.to_status(self._told(failure_of(rpc_error).status, only)))
        except StatusError as error:
            context.abort_with_status(rpc_status.to_status(error.status))
        finally:
            end()

    def pump_message_stream(self, pump: StreamPump, context: grpc.ServicerContext) -> bool:
        """The same to the only commitlog, fed by gRPC's polling thread; False when there are several.

        Over its local socket where it has one. The caller's deadline ends the stream like a cancellation.
        """
        only = self._only
        if only is None:
            return False
        stream = only.local.open_stream()
        if stream is None:
            self._pump_over_grpc(pump, context, only)
            return True
        if not context.add_callback(stream.cancel):
            stream.cancel()
        pump.start(stream.give, UNANSWERED_COUNT_MAX)
        try:
            for response in stream:
                pump.send(response)
        except StatusError as error:
            context.abort_with_status(rpc_status.to_status(self._told(error.status, only)))
        finally:
            pump.wait_until_sent()  # the call must not end before its last responses are sent
        return True

    def _pump_over_grpc(self, pump: StreamPump, context: grpc.ServicerContext, only: Commitlog) -> None:
        requests: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._one_stream(iter(requests.get, None), context, only)
        if not context.add_callback(call.cancel):
            call.cancel()
        pump.start(requests.put, UNANSWERED_COUNT_MAX)
        try:
            for response in call:
                pump.send(response)
        except grpc.RpcError as rpc_error:
            context.abort_with_status(rpc_status.to_status(self._told(failure_of(rpc_error).status, only)))
        finally:
            call.cancel()
            requests.put(None)  # the thread that sends them ends
            pump.wait_until_sent()

    def close(self) -> None:
        """Send nothing more; waiting callers get no response."""
        for commitlog in self._open.values():
            commitlog.close()

    def _told(self, status: Any, commitlog: Commitlog | None) -> Any:
        """The status of a stream to one commitlog that has failed, as its caller gets it."""
        if self._group is None or commitlog is None or not self._group.leaders.is_replicated(commitlog.broker_name):
            return status
        commitlog.successor(status, 0)  # notes that it does not lead
        return with_retry_info(status)

    def _one_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext, commitlog: Commitlog) -> Any:
        remaining = context.time_remaining()
        timeout = remaining if remaining is not None and remaining < STREAM_SECONDS_MAX else None
        return commitlog.open_stream(requests, timeout)

    def _spread_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> SpreadStream:
        stream = SpreadStream(self._spread, APPEND_SECONDS, time_left_until(context, STREAM_SECONDS_MAX))
        threading.Thread(target=stream.take_all, args=(requests,), name="append-stream", daemon=True).start()
        return stream
