"""Telemetry streams on which the gateway also speaks unasked: to producers about hanging transactions, to consumers as members.

A stream has one thread, which waits for the client's next command. What is to be said waits in the session, which wakes that
thread (services/serving/calls/woken_requests.py). A client that does not take its answers is not read, and what waits for it
has a limit.
"""

import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.messages import resource_of, to_pulled
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.format.properties import PRODUCER_GROUP

# Questions that wait to be written to one client; more are not asked now.
QUESTION_COUNT_MAX = 1_000
# Of the questions to all clients of a gateway together: most have a message, which may have 4 MiB.
QUESTION_BYTES_MAX = 32 << 20
# Questions to one client whose answers are waited for; a person asks.
UNANSWERED_COUNT_MAX = 16

Answer: TypeAlias = "Callable[[v2.TelemetryCommand], v2.TelemetryCommand | None]"
# Gets the client's answer, or None when none will come any more.
Answered: TypeAlias = Callable[[v2.TelemetryCommand | None], object]


class QuestionBytes:
    """What the questions to all clients have that are not written yet; thread-safe."""

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


class TelemetrySession:
    """What is to be said on one stream; also a Session of a producer (gateway/waiting/producers.py).

    Args:
        is_alive: whether its client gave a sign of life of late.
        question_bytes: of all sessions.
        wake: makes the stream's thread take its next request, from any thread.
    """

    def __init__(self, is_alive: Callable[[], bool], question_bytes: QuestionBytes, wake: Callable[[], object]) -> None:
        self._is_alive = is_alive
        self._question_bytes = question_bytes
        self._wake = wake
        self._questions: queue.SimpleQueue[v2.TelemetryCommand] = queue.SimpleQueue()
        self._unanswered: dict[str, Answered] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """See Session."""
        if not _is_of_topic(check.message) or not self._is_alive():
            return False
        return self._put(
            v2.TelemetryCommand(
                recover_orphaned_transaction_command=v2.RecoverOrphanedTransactionCommand(
                    message=to_pulled(check.message), transaction_id=check.transaction_id
                )
            )
        )

    def ask_member(self, question: v2.TelemetryCommand, answered: Answered) -> "Callable[[], None] | None":
        """Ask a question that has an answer; returns at once.

        Args:
            question: without a nonce.
            answered: called once, from any thread.

        Returns:
            What ends the wait for the answer, if it has not come; None: the client cannot be asked now, and `answered` is
            not called.
        """
        nonce = uuid.uuid4().hex
        getattr(question, str(question.WhichOneof("command"))).nonce = nonce
        with self._lock:
            if self._is_over or len(self._unanswered) >= UNANSWERED_COUNT_MAX:
                return None
            self._unanswered[nonce] = answered
        if not self._put(question):
            if self._take_unanswered(nonce) is None:
                return _nothing  # the stream has ended meanwhile, and told so
            return None
        return lambda: self._end_wait(nonce, None)

    def tell(self, command: v2.TelemetryCommand) -> bool:
        """Say something that has no answer; whether it will be said, unless the stream ends before."""
        return self._put(command)

    def note_answer(self, command: v2.TelemetryCommand) -> None:
        """A client has said something that may be an answer; one to no question of this stream is left alone."""
        self._end_wait(getattr(command, str(command.WhichOneof("command"))).nonce, command)

    def commands(self, requests: Iterator[v2.TelemetryCommand], answer: Answer) -> Iterator[v2.TelemetryCommand]:
        """The answers to all requests, and the questions; ends with the requests, or with the error of an answer."""
        try:
            for request in requests:
                answered = answer(request)
                if answered is not None:
                    yield answered
                while (question := self._next_question()) is not None:
                    try:
                        yield question
                    finally:
                        self._question_bytes.give_back(question.ByteSize())
        finally:
            self._end()

    def _put(self, question: v2.TelemetryCommand) -> bool:
        if self._questions.qsize() >= QUESTION_COUNT_MAX or not self._question_bytes.take(question.ByteSize()):
            return False
        with self._lock:
            if not self._is_over:
                self._questions.put(question)
                self._wake()
                return True
        self._question_bytes.give_back(question.ByteSize())
        return False

    def _next_question(self) -> v2.TelemetryCommand | None:
        try:
            return self._questions.get_nowait()
        except queue.Empty:
            return None

    def _take_unanswered(self, nonce: str) -> Answered | None:
        with self._lock:
            return self._unanswered.pop(nonce, None)

    def _end_wait(self, nonce: str, command: v2.TelemetryCommand | None) -> None:
        answered = self._take_unanswered(nonce)
        if answered is not None:
            answered(command)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
        while (question := self._next_question()) is not None:
            self._question_bytes.give_back(question.ByteSize())
        for nonce in list(self._unanswered):
            self._end_wait(nonce, None)


def _nothing() -> Any:
    """For a wait that has ended."""


def _is_of_topic(message: message_pb2.StoredMessage) -> bool:
    """Whether any producer of the topic may be asked.

    RocketMQ's proxy writes the topic as the producer group of a half message (`to_new_message`). Another group is that of
    remoting producers: others know nothing of the transaction, and would roll it back.
    """
    group = message.properties.get(PRODUCER_GROUP, "")
    return group in ("", message.topic, resource_of(message.topic).name)
