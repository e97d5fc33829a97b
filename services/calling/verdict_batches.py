"""VerdictBatches: verdicts of many callers, sent to a schedule service together.

Theory of operation: like small appends (gateway/appends/coalescer.py). While CALL_COUNT_MAX calls are under way, verdicts
collect; when one of the calls ends, the next one takes all of them. A verdict that comes back without an outcome has to look
further, or to wait for another one: it is sent again alone, so that it delays no others. So are all verdicts to a service of an
earlier release, which does not know the method. In both cases nothing was done for them. No other verdict is sent twice: the
second one would be refused.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import grpc
import structlog

from reput.schedule.v1 import schedule_service_pb2 as pb
from services import status
from services.calling.client import Done, ServiceClient
from services.rpcs.schedule import END_TRANSACTION, END_TRANSACTIONS
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

# The next call is made before answers are handed out, so the service is not idle meanwhile. A second one made batches half as
# large, which cost an eighth more CPU time for each transaction (ADR 0096).
CALL_COUNT_MAX = 1
# What the service takes.
VERDICT_COUNT_MAX = 256

# Makes a call with a timeout in seconds and gives its outcome to the last argument, once, in any thread.
SendAll = Callable[[pb.EndTransactionsRequest, float, Done[pb.EndTransactionsResponse]], object]
SendOne = Callable[[pb.EndTransactionRequest, float, Done[pb.EndTransactionResponse]], object]

_log = structlog.get_logger("reput.rpc")


@dataclass(frozen=True, slots=True)
class _OpenVerdict:
    request: pb.EndTransactionRequest
    deadline: float  # on the clock
    done: Done[pb.EndTransactionResponse]


class VerdictBatches:
    """See the top of this file; thread-safe. How many verdicts wait is limited by the lanes of the gateway's server.

    Args:
        send_all: makes an EndTransactions call.
        send_one: makes an EndTransaction call.
        clock: seconds, rising.
    """

    def __init__(self, send_all: SendAll, send_one: SendOne, clock: Callable[[], float] = time.monotonic) -> None:
        self._send_all = send_all
        self._send_one = send_one
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[_OpenVerdict] = deque()
        self._call_count = 0

    def end(
        self, request: pb.EndTransactionRequest, timeout_seconds: float, done: Done[pb.EndTransactionResponse]
    ) -> None:
        """Send a verdict; `done` gets its outcome once, in any thread."""
        with self._lock:
            self._waiting.append(_OpenVerdict(request, self._clock() + timeout_seconds, done))
            begins = self._call_count < CALL_COUNT_MAX
            self._call_count += begins
        if begins:
            self._send_next()

    def _send_next(self) -> None:
        """Make a call with what waits; when nothing waits, there is one call less under way."""
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), VERDICT_COUNT_MAX))]
                if not batch:
                    self._call_count -= 1
                    return
            now = self._clock()
            late = [one for one in batch if one.deadline <= now]
            batch = [one for one in batch if one.deadline > now]
            _tell(late, DeadlineExceededError("no time was left to call schedule: allow more time", service="schedule"))
            if batch:
                request = pb.EndTransactionsRequest(verdicts=[one.request for one in batch])
                seconds = max(one.deadline for one in batch) - now
                self._send_all(request, seconds, partial(self._ended, batch))
                return

    def _ended(self, sent: Sequence[_OpenVerdict], outcome: pb.EndTransactionsResponse | StoreError) -> None:
        self._send_next()  # first: the service works while answers are handed out
        if isinstance(outcome, StoreError):
            if outcome.metadata.get("code") != grpc.StatusCode.UNIMPLEMENTED.name:
                _tell(sent, outcome)
                return
            outcomes: Sequence[pb.EndTransactionsResponse.Outcome] = [pb.EndTransactionsResponse.Outcome()] * len(sent)
        else:
            outcomes = outcome.outcomes
        if len(outcomes) != len(sent):
            _tell(sent, ServiceUnavailableError("schedule sent another number of outcomes than it got verdicts"))
            return
        for one, became in zip(sent, outcomes, strict=True):
            match became.WhichOneof("outcome"):
                case "ended":
                    _tell([one], became.ended)
                case "error":
                    _tell([one], status.from_status(became.error))
                case _:
                    self._send_one(one.request, one.deadline - self._clock(), one.done)


def batches_over(client: ServiceClient) -> VerdictBatches:
    """The batches of a schedule service."""
    return VerdictBatches(
        lambda request, seconds, done: client.later(END_TRANSACTIONS, request, seconds, done),
        lambda request, seconds, done: client.later(END_TRANSACTION, request, seconds, done),
    )


def _tell(waiting: Sequence[_OpenVerdict], outcome: pb.EndTransactionResponse | StoreError) -> None:
    for one in waiting:
        try:
            one.done(outcome)
        except Exception:  # the others are told all the same
            _log.exception("rpc.callback_failed")
