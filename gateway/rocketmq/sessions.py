"""Telemetry streams on which the gateway also speaks unasked: those of producers, which are asked about hanging transactions.

A stream has one thread, which waits for the client's next command. A producer's gets a second one from its first settings on:
one reads, the other writes. A client that does not take its answers is not read either, so what waits for it has a limit.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.messages import resource_of, to_pulled
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.format.properties import PRODUCER_GROUP

# Questions that wait to be written to one producer; more are not asked now.
QUESTION_COUNT_MAX = 1_000
# Of the questions to all producers of a gateway together: each has the half message, which may have 4 MiB.
QUESTION_BYTES_MAX = 32 << 20

Answer: TypeAlias = "Callable[[v2.TelemetryCommand], v2.TelemetryCommand | None]"

_END = object()


class QuestionBytes:
    """What the questions to all producers have that are not written yet; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._size_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for one more."""
        with self._lock:
            if self._size_bytes + size_bytes > QUESTION_BYTES_MAX:
                return False
            self._size_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """It is written, or dropped."""
        with self._lock:
            self._size_bytes -= size_bytes


class ProducerSession:
    """A Session: what is to be written on one stream, in order.

    Args:
        is_alive: whether its client gave a sign of life of late.
        question_bytes: of all sessions.
    """

    def __init__(self, is_alive: Callable[[], bool], question_bytes: QuestionBytes) -> None:
        self._is_alive = is_alive
        self._question_bytes = question_bytes
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answer_room = threading.Semaphore()
        self._lock = threading.Lock()
        self._is_over = False

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """See Session."""
        if not _is_of_topic(check.message):
            return False
        if self._is_over or self._outbox.qsize() >= QUESTION_COUNT_MAX or not self._is_alive():
            return False
        question = v2.TelemetryCommand(
            recover_orphaned_transaction_command=v2.RecoverOrphanedTransactionCommand(
                message=to_pulled(check.message), transaction_id=check.transaction_id
            )
        )
        if not self._question_bytes.take(question.ByteSize()):
            return False
        with self._lock:
            if not self._is_over:
                self._outbox.put(question)
                return True
        self._question_bytes.give_back(question.ByteSize())
        return False

    def answer_first(self, answered: v2.TelemetryCommand) -> None:
        """Have the answer to the settings that began the session written before every question; once, before `commands`."""
        self._answer_room.acquire()
        self._outbox.put(answered)

    def commands(self, requests: Iterator[v2.TelemetryCommand], answer: Answer) -> Iterator[v2.TelemetryCommand]:
        """The answers to all requests, and the questions; ends with the requests, or with the error of an answer."""

        def read() -> None:
            try:
                for request in requests:
                    answered = answer(request)
                    if answered is not None:
                        self._answer_room.acquire()
                        if self._is_over:
                            return
                        self._outbox.put(answered)
                self._outbox.put(_END)
            except Exception as error:  # it is raised where the stream is served
                self._outbox.put(error)

        threading.Thread(target=read, name="telemetry", daemon=True).start()
        try:
            while (command := self._outbox.get()) is not _END:
                if isinstance(command, Exception):
                    raise command
                try:
                    yield command
                finally:
                    self._is_written(command)
        finally:
            self._end()

    def _is_written(self, command: v2.TelemetryCommand) -> None:
        if command.HasField("recover_orphaned_transaction_command"):
            self._question_bytes.give_back(command.ByteSize())
        else:
            self._answer_room.release()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
        self._answer_room.release()
        with contextlib.suppress(queue.Empty):
            while True:
                left = self._outbox.get_nowait()
                if isinstance(left, v2.TelemetryCommand):
                    self._is_written(left)


def _is_of_topic(message: message_pb2.StoredMessage) -> bool:
    """Whether any producer of the topic may be asked.

    RocketMQ's proxy writes the topic as the producer group of a half message (`to_new_message`). Another group is that of
    remoting producers: others know nothing of the transaction, and would roll it back.
    """
    group = message.properties.get(PRODUCER_GROUP, "")
    return group in ("", message.topic, resource_of(message.topic).name)
