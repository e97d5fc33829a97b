"""LocalCalls: calls over a local socket of a service, answered in a callback, as `later.py` makes them over gRPC.

A call has a thread while it is under way, of a few that are kept. So there is a bound: a call that finds none free is made
over gRPC, and so is one that the socket does not take. Both ends together need a third of the CPU time of a call over gRPC.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from services import status
from services.calling.later import Done
from services.local.client import LocalClient
from services.local.wire import LocalMethod
from services.observing import tracing
from store.errors import ServiceUnavailableError, StoreError

# Calls under way; more go over gRPC.
THREAD_COUNT_MAX = 8

Answer = TypeVar("Answer")

_log = structlog.get_logger("reput.rpc")


class LocalCalls:
    """Calls one service; thread-safe.

    Args:
        local: to one of its sockets.
        thread_count_max: calls under way at the same time.
    """

    def __init__(self, local: LocalClient, thread_count_max: int = THREAD_COUNT_MAX) -> None:
        self._local = local
        self._thread_count_max = thread_count_max
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._idle_count = 0
        self._thread_count = 0
        self._is_closed = False

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
            done: gets the answer or the typed error, once, in a thread of these calls.
            over_grpc: makes the call over gRPC instead, with so many seconds left.
        """

        began = time.monotonic()
        context = copy_context() if tracing.is_on() else None

        def make() -> None:
            outcome: Answer | StoreError
            try:
                answer = self._local.call(method, request.SerializeToString(), timeout_seconds - _since(began))
                if answer is None:
                    over_grpc(timeout_seconds - _since(began))
                    return
                outcome = parse(answer)
            except status.StatusError as error:
                outcome = status.from_status(error.status)
            except StoreError as error:
                outcome = error
            except DecodeError as error:
                outcome = ServiceUnavailableError(
                    f"{self._local.service} sent what is no answer: {error}", service=self._local.service
                )
            done(outcome)

        job = make if context is None else partial(context.run, make)
        if timeout_seconds <= 0 or not self._local.has_socket or not self._offer(job):
            over_grpc(timeout_seconds)

    def close(self) -> None:
        """End the threads, each after its call; later calls go over gRPC."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._thread_count):
                self._jobs.put(None)

    def _offer(self, job: Callable[[], object]) -> bool:
        """Give a job to a free thread; whether there is one."""
        with self._lock:
            if self._is_closed:
                return False
            if self._idle_count:
                self._idle_count -= 1
            elif self._thread_count < self._thread_count_max:
                try:
                    threading.Thread(target=self._run, name=f"{self._local.service}-calls", daemon=True).start()
                except RuntimeError:  # no room for a thread
                    return False
                self._thread_count += 1
            else:
                return False
            self._jobs.put(job)
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # the thread serves the next call
                _log.exception("rpc.callback_failed")
            del job
            with self._lock:
                self._idle_count += 1


def _since(began: float) -> float:
    return time.monotonic() - began
