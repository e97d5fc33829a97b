"""Forwards appends to the shards' commitlogs as the bytes received: both contracts have the same messages on the wire.

With one shard, only the fields are read that decide on batches (coalescer.py). With several, spread.py chooses the shard
of each message. The caller gets a commitlog's status unchanged, trailers included.

`Commitlog`: the appends of one shard go over a local socket if its commitlog runs on this machine and accepts us, otherwise
over gRPC. Nothing is sent again here, because an append is not idempotent.

One refusal is different: a replica that does not lead has written nothing, and another one will take the request. So it waits
for HOLD_SECONDS_MAX until the shard has a leader, and is sent there: a planned hand-over fails no append. After that, and when
the leader is gone, the caller gets UNAVAILABLE with a RetryInfo.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import grpc
import structlog
from grpc_status import rpc_status

from gateway.appends.backpressure import UNANSWERED_COUNT_MAX, Backpressure
from gateway.appends.checked_stream import CheckedPump, StreamChecks
from gateway.appends.coalescer import (
    FLUSH_MODE_COUNT,
    SENDER_COUNT,
    AppendCoalescer,
    AppendFailedError,
    Outcome,
    PendingAppend,
    answer_or_fail,
    fail_each,
    read_small_append,
    split_results,
)
from gateway.appends.outcomes import (
    NOT_LEADER,
    NOT_SENT,
    broken,
    closed,
    expired,
    failed_with,
    failure_of,
    with_retry_info,
)
from gateway.appends.routes import AppendRoutes
from gateway.appends.spread import AppendSpread, SpreadStream, time_left_until
from services.local.client import AppendClient
from services.methods import APPEND_SECONDS
from services.serving.calls.append_pump import Pumped, StreamPump
from services.serving.calls.unary_call import Answerable, AnsweredLater
from services.serving.deadline import remaining_seconds
from services.status import StatusError, error_info, to_status
from store.errors import StoreError

COMMITLOG_SERVICE = "/reput.commitlog.v1.CommitLogService/"
ALONE_COUNT_DEFAULT = 16

# A planned hand-over takes less; a thread waits meanwhile.
HOLD_SECONDS_MAX = 5.0

_log = structlog.get_logger("reput.gateway")


class LeaderWaits(Protocol):
    """Which replica of a shard leads; `gateway/shards/leaders.py`."""

    def is_replicated(self, broker_name: str) -> bool:
        """Whether the shard has replicas."""

    def note_not_leading(self, broker_name: str, commitlog: str) -> None:
        """The commit log at that address does not lead."""

    def wait_until_led(self, broker_name: str, seconds: float) -> bool:
        """Wait until the shard has a leader, and appends go there."""


class Commitlog:
    """Sends requests to one commitlog. It has its own threads, so a commitlog that hangs blocks no other.

    Args:
        channel: the gRPC channel to it.
        target: its address; empty: requests go over the channel only.
        alone_count: requests sent alone at the same time: large ones, or with options of their own.
        broker_name: its shard's name.
        group: the commitlogs of all shards; None when no shard has replicas.

    Attributes:
        local: the client over local sockets.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        target: str,
        alone_count: int = ALONE_COUNT_DEFAULT,
        broker_name: str = "",
        group: "CommitlogGroup | None" = None,
    ) -> None:
        self.broker_name = broker_name
        self._target = target
        self._group = group
        self.local = AppendClient(target)
        self._append: Any = channel.unary_unary(COMMITLOG_SERVICE + "AppendMessages")
        self._two_way: Any = channel.stream_stream(COMMITLOG_SERVICE + "AppendMessageStream")
        self._alone = ThreadPoolExecutor(alone_count, thread_name_prefix="append-alone")
        self._senders = ThreadPoolExecutor(SENDER_COUNT * FLUSH_MODE_COUNT, thread_name_prefix="append-sender")
        self._coalescer = AppendCoalescer(
            self._send,
            split_results,
            self._senders,
            clock=time.monotonic,
            expired=expired,
            broken=broken,
            closed=closed,
            begin=self._begin,
        )

    def send(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """Send a request, in a batch with others if it is small. Returns at once; the caller is answered later.

        Args:
            request: the bytes of an AppendMessagesRequest.
            deadline_seconds: on the monotonic clock.
            caller: gets the response.
        """
        small = read_small_append(request)
        if small is None:
            self.send_alone(request, deadline_seconds, caller)
        else:
            self._coalescer.offer(PendingAppend(request, small.message_count, small.flush, deadline_seconds, caller))

    def send_small(self, appends: Sequence[PendingAppend]) -> None:
        """Send requests that came together and may be joined (`read_small_append`). Returns at once, as `send`."""
        self._coalescer.offer_all(appends)

    def send_alone(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """Send a request in a call of its own; arguments as `send`. Without a thread, where that is possible."""

        def ended(outcome: Outcome) -> None:
            if outcome is None:
                self._leave_alone_to_thread(request, deadline_seconds, caller)
            elif isinstance(outcome, AppendFailedError):
                fail_each([caller], outcome.status)
            else:
                answer_or_fail(caller, outcome, broken)

        if not self._begin(request, deadline_seconds - time.monotonic(), ended):
            self._leave_alone_to_thread(request, deadline_seconds, caller)

    def _leave_alone_to_thread(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        try:
            sending = self._alone.submit(self._send_alone, request, deadline_seconds, caller)
        except RuntimeError:  # it is shut down: nothing was sent
            fail_each([caller], closed())
            return
        sending.add_done_callback(lambda done: caller.fail(closed()) if done.cancelled() else None)

    def open_stream(self, requests: Iterator[bytes], timeout_seconds: float | None) -> Any:
        """A stream over gRPC: an iterator over its responses, with `cancel`."""
        return self._two_way(requests, timeout=timeout_seconds)

    def close(self) -> None:
        """Send no more requests; callers that wait get a failure."""
        self._coalescer.close()
        self._alone.shutdown(wait=False, cancel_futures=True)
        self._senders.shutdown(wait=False, cancel_futures=True)
        self.local.close()

    def _send_alone(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        try:
            caller.answer(self._send(request, deadline_seconds - time.monotonic()))
        except AppendFailedError as error:
            caller.fail(error.status)
        except Exception:
            _log.exception("append.failed", count=1)
            caller.fail(broken())

    def _begin(self, request: bytes, seconds: float, ended: Callable[[Outcome], object]) -> bool:
        """Over the socket, where nothing has to wait for another leader; see coalescer.Begin."""
        if self._group is not None and self._group.leaders.is_replicated(self.broker_name):
            return False

        def known(outcome: bytes | StatusError | StoreError | None) -> None:
            if isinstance(outcome, StatusError):
                ended(failed_with(outcome.status))
            elif isinstance(outcome, StoreError):
                ended(AppendFailedError(to_status(outcome)))
            else:
                ended(outcome)

        return self.local.append_later(request, seconds, known)

    def _send(self, request: bytes, seconds: float) -> bytes:
        if self._group is None or not self._group.leaders.is_replicated(self.broker_name):
            return self.send_once(request, seconds)
        deadline_seconds = time.monotonic() + seconds
        hold_until_seconds = time.monotonic() + min(seconds, HOLD_SECONDS_MAX)
        commitlog = self
        while True:
            try:
                return commitlog.send_once(request, deadline_seconds - time.monotonic())
            except AppendFailedError as error:
                successor = commitlog.successor(error.status, hold_until_seconds - time.monotonic())
                if successor is None:
                    raise AppendFailedError(
                        with_retry_info(error.status), is_refused=error.is_refused, index=error.index
                    ) from error
                commitlog = successor

    def successor(self, status: Any, seconds: float) -> "Commitlog | None":
        """The commitlog that leads after this one has failed; None when the request must not be sent again, or in time."""
        info = error_info(status)
        is_unsent = info is not None and info.metadata.get(NOT_SENT) == "true"
        does_not_lead = info is not None and info.reason == NOT_LEADER
        assert self._group is not None
        if status.code == grpc.StatusCode.UNAVAILABLE.value[0]:
            self._group.leaders.note_not_leading(self.broker_name, self._target)
        if not (does_not_lead or is_unsent) or seconds <= 0:
            return None
        if not self._group.leaders.wait_until_led(self.broker_name, seconds):
            return None
        return self._group.of_shard(self.broker_name)

    def send_once(self, request: bytes, seconds: float) -> bytes:
        """The response to a request; AppendFailedError."""
        deadline_seconds = time.monotonic() + seconds
        try:
            response = self.local.append(request, seconds)
            if response is None:
                response = self._append(request, timeout=deadline_seconds - time.monotonic())
        except StatusError as error:
            raise failed_with(error.status) from error
        except StoreError as error:
            raise AppendFailedError(to_status(error)) from error
        except grpc.RpcError as rpc_error:
            raise failure_of(rpc_error) from rpc_error
        return response


class CommitlogGroup:
    """The commitlogs of all shards, for a request that must go to another replica; thread-safe.

    Args:
        leaders: which replica leads.
    """

    def __init__(self, leaders: LeaderWaits) -> None:
        self.leaders = leaders
        self._commitlogs: Mapping[str, Commitlog] = {}

    def keep(self, commitlogs: Mapping[str, Commitlog]) -> None:
        """Set them, by name of the shard."""
        self._commitlogs = commitlogs

    def of_shard(self, broker_name: str) -> Commitlog | None:
        """The commitlog that a shard has now."""
        return self._commitlogs.get(broker_name)


# Deadlines further away than this are gRPC's "never".
STREAM_SECONDS_MAX = 86_400.0


@dataclass(frozen=True, slots=True)
class AppendTarget:
    """A shard's commitlog: the channel to it and its address; with an empty address the channel is the only way."""

    broker_name: str
    channel: grpc.Channel
    address: str = ""


class SmallRequest(NamedTuple):
    """A request of one message, of SMALL_REQUEST_BYTES_MAX at most: its bytes, its FlushMode, and who gets the response."""

    request: bytes
    flush: int
    caller: Answerable


class AppendForwarder:
    """Forwards unary appends, small ones in batches, and append streams.

    Args:
        channels: the channels to the commitlogs; none: `keep` gives them.
        alone_count: requests of one shard sent alone at the same time: large ones, or with options of their own.
        targets: the commitlogs' addresses; without them, the channels are the only way.
        routes: chooses among several shards.
        leaders: which replica of a shard leads; None: no shard has replicas.
        check: looks at each request before it is sent, and raises StoreError for one that is refused; None: all are sent.
    """

    def __init__(
        self,
        channels: Sequence[grpc.Channel] = (),
        alone_count: int = ALONE_COUNT_DEFAULT,
        targets: Sequence[str] = (),
        *,
        routes: AppendRoutes | None = None,
        leaders: LeaderWaits | None = None,
        check: Callable[[bytes], None] | None = None,
    ) -> None:
        self._check = check
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
        if not self._passes(request, caller):
            return
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
        if not self._passes(request, caller):
            return
        self._spread.send_to(broker_name, request, time.monotonic() + remaining_seconds(caller, APPEND_SECONDS), caller)

    def append_small_to(self, broker_name: str, appends: Sequence[SmallRequest]) -> None:
        """Requests that came together, each of one small message and without options; as `append_to`."""
        deadline_seconds = time.monotonic() + APPEND_SECONDS
        self._spread.commitlog_of(broker_name).send_small(
            [
                PendingAppend(each.request, 1, each.flush, deadline_seconds, each.caller)
                for each in appends
                if self._passes(each.request, each.caller)
            ]
        )

    def _passes(self, request: bytes, caller: Answerable) -> bool:
        """Whether a request is to be sent; if not, its caller is answered."""
        if self._check is not None:
            try:
                self._check(request)
            except StoreError as refusal:
                fail_each([caller], to_status(refusal))
                return False
        return True

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """A stream for a stream, over gRPC.

        gRPC reads a request only when the previous one was sent on, and a response only when the previous one was read.
        No request is read while many earlier ones have unread responses (backpressure.py). So no requests pile up here
        for a caller that does not read. The end of the requests is passed on; when either side cancels, the other side
        is cancelled, too.
        """
        checks = None if self._check is None else StreamChecks(self._check, context)
        held = Backpressure(requests if checks is None else map(checks.request, requests))
        only = self._only  # once: a shard may join meanwhile
        call = self._spread_stream(held, context) if only is None else self._one_stream(held, context, only)

        def end() -> None:
            held.close()
            call.cancel()

        if not context.add_callback(end):
            end()
        try:
            for response in call:
                yield response if checks is None else checks.answer(response)
                held.answered()
        except grpc.RpcError as rpc_error:
            context.abort_with_status(rpc_status.to_status(self._told(failure_of(rpc_error).status, only)))
        except StatusError as error:
            context.abort_with_status(rpc_status.to_status(error.status))
        finally:
            end()

    def pump_message_stream(self, pump: StreamPump | CheckedPump, context: grpc.ServicerContext) -> bool:
        """The same to the only commitlog, fed by gRPC's polling thread; False when there are several.

        Over its local socket where it has one. The caller's deadline ends the stream like a cancellation.
        """
        only = self._only
        if only is None:
            return False
        if self._check is not None:
            pump = CheckedPump(pump, StreamChecks(self._check, context))
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

    def _pump_over_grpc(self, pump: StreamPump | CheckedPump, context: grpc.ServicerContext, only: Commitlog) -> None:
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
