"""Telemetry streams on which the gateway also speaks unasked: those of producers, which are asked about hanging transactions.

A stream has one thread, which waits for the client's next command. A producer's gets a second one from its first settings on:
one reads, the other writes.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.waiting import Check
from gateway.rocketmq.messages import to_pulled
from reput.message.v1.message_pb2 import StoredMessage

# Questions that wait to be written to one producer; more are not asked now.
QUESTION_COUNT_MAX = 1_000

Answer: TypeAlias = "Callable[[v2.TelemetryCommand], v2.TelemetryCommand | None]"

_END = object()


class ProducerSession:
    """A Session: what is to be written on one stream, in order.

    Args:
        is_alive: whether its client gave a sign of life of late.
    """

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self._is_alive = is_alive
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_over = False

    def ask(self, check: Check[StoredMessage]) -> bool:
        """See Session."""
        if self._is_over or self._outbox.qsize() >= QUESTION_COUNT_MAX or not self._is_alive():
            return False
        self._outbox.put(
            v2.TelemetryCommand(
                recover_orphaned_transaction_command=v2.RecoverOrphanedTransactionCommand(
                    message=to_pulled(check.message), transaction_id=check.transaction_id
                )
            )
        )
        return True

    def commands(self, requests: Iterator[v2.TelemetryCommand], answer: Answer) -> Iterator[v2.TelemetryCommand]:
        """The answers to all requests, and the questions; ends with the requests, or with the error of an answer."""

        def read() -> None:
            try:
                for request in requests:
                    answered = answer(request)
                    if answered is not None:
                        self._outbox.put(answered)
                self._outbox.put(_END)
            except Exception as error:  # it is raised where the stream is served
                self._outbox.put(error)

        threading.Thread(target=read, name="telemetry", daemon=True).start()
        try:
            while (command := self._outbox.get()) is not _END:
                if isinstance(command, Exception):
                    raise command
                yield command
        finally:
            self._is_over = True
