"""Producers of messages that wait, what they were answered, and the judgement by the log's own bytes.

Every message says its name in its body and its unique key. What is promised of it follows from the answers:

- there once: a delayed or timed one whose receipt came, a committed one whose commit was answered
- not there: recalled, rolled back or undecided ones (a recall or a verdict without an answer may have been carried out)
- never before its time, by the store times of the log
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1.message_pb2 import FLUSH_MODE_SYNC, FlushMode, NewMessage
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from tests.support.service import CHANNEL_OPTIONS
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.store_check import DELAY_SECONDS, DELAY_TOPIC, Frame, check_queues, read_frames
from tests.torture.test_random_kills import Services

TOPIC = "orders"
RETRY_SECONDS = 0.1
PACE_SECONDS = 0.02  # after each message: what is tested are kills, on a machine that has other work
# Answers after which nobody knows whether it was done.
UNKNOWN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED}


class Kind(Enum):
    """What becomes of a message."""

    DELAYED = "delayed"
    TIMED = "timed"
    RECALLED = "recalled"
    COMMITTED = "committed"
    ROLLED_BACK = "rolledback"
    UNDECIDED = "undecided"


class Answer(Enum):
    """To a recall or a verdict: carried out, nothing there to carry it out on, or not known."""

    DONE = 1
    NOT_FOUND = 2
    UNKNOWN = 3


@dataclass(slots=True)
class Sent:
    """A message and what was answered.

    Attributes:
        delivery_millis: not before this time; 0: after the delay of level 1.
        handle: of the receipt; names it for a recall or a verdict. Empty when it did not wait, as its time had come.
        answers: to its recall or verdict, in order.
    """

    name: str
    kind: Kind
    delivery_millis: int = 0
    is_acked: bool = False
    handle: str = ""
    answers: list[Answer] = field(default_factory=list)

    def copy_counts(self) -> set[int]:
        """How often it may be in its topic in the end."""
        if self.kind in (Kind.ROLLED_BACK, Kind.UNDECIDED):
            return {0}
        if not self.is_acked:
            return {0} if self.kind is Kind.COMMITTED else {0, 1}
        if self.kind in (Kind.DELAYED, Kind.TIMED):
            return {1}
        if not self.answers:
            return {0} if self.kind is Kind.COMMITTED else {1}
        last, was_unknown = self.answers[-1], Answer.UNKNOWN in self.answers
        if last is Answer.DONE:
            return {1} if self.kind is Kind.COMMITTED else {0}
        if last is Answer.NOT_FOUND and self.kind is Kind.COMMITTED:
            return {1}  # an earlier try was carried out
        return {0, 1} if was_unknown else {1}

    def is_pending(self) -> bool | None:
        """Whether it waits for a verdict in the end; None: not known."""
        if not self.is_acked and self.kind in (Kind.UNDECIDED, Kind.COMMITTED, Kind.ROLLED_BACK):
            return None
        is_half = self.kind in (Kind.UNDECIDED, Kind.COMMITTED, Kind.ROLLED_BACK)
        if is_half and not self.answers:
            return True
        return None if set(self.answers) == {Answer.UNKNOWN} else False


def _wall_millis() -> int:
    return time.time_ns() // 1_000_000


class Work:
    """Sends messages and ends what they wait for, through the gateway. Its methods may be called by several threads.

    Args:
        address: of the gateway.
        wall_millis: the clock of the services.
        topic: of the messages.
        flush: when they are answered.
    """

    def __init__(
        self,
        address: str,
        wall_millis: Callable[[], int] = _wall_millis,
        topic: str = TOPIC,
        flush: FlushMode = FLUSH_MODE_SYNC,
    ) -> None:
        self.sent: list[Sent] = []
        self.problems: list[str] = []
        self.last_error = ""
        self._wall_millis = wall_millis
        self._topic = topic
        self._flush = flush
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = gateway_grpc.GatewayServiceStub(self._channel)

    def close(self) -> None:
        """No call any more."""
        self._channel.close()

    @property
    def acked_count(self) -> int:
        """Messages with a receipt."""
        return sum(sent.is_acked for sent in self.sent)

    def send(self, kind: Kind, chance: random.Random, about: str = "", ahead_millis: int = 0) -> Sent:
        """One message that waits, in one of the forms that there are; nothing is sent twice."""
        sent = Sent(f"{kind.value}-{about}{len(self.sent)}-{chance.getrandbits(32):08x}", kind)
        message = NewMessage(topic=self._topic, body=f"{sent.name}|".encode(), unique_key=sent.name)
        if kind is Kind.DELAYED:
            if chance.random() < 0.5:
                message.delay_level = 1
            else:
                message.properties["DELAY"] = "1"
        elif kind in (Kind.TIMED, Kind.RECALLED):
            ahead = ahead_millis or chance.randrange(1_100, 4_000)
            sent.delivery_millis = self._wall_millis() + ahead
            form = chance.randrange(3)
            if form == 0:
                message.delivery_time.CopyFrom(Timestamp(nanos=sent.delivery_millis % 1000 * 1_000_000))
                message.delivery_time.seconds = sent.delivery_millis // 1000
            elif form == 1:
                message.properties["TIMER_DELIVER_MS"] = str(sent.delivery_millis)
            else:
                message.properties["TIMER_DELAY_MS"] = str(ahead)
        else:
            message.properties["TRAN_MSG"] = "true"
            message.properties["PGROUP"] = "producers"
        self.sent.append(sent)
        request = pb.AppendMessagesRequest(messages=[message], flush=self._flush)
        try:
            (result,) = self._stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX, wait_for_ready=True).results
        except grpc.RpcError as error:
            self._note_unless_unknown(error, sent, "send")
        else:
            sent.handle = result.recall_handle or result.transaction_id
            sent.is_acked = True
        return sent

    def end(self, sent: Sent) -> None:
        """Recall it, or give its verdict; tried again while nobody knows whether it was done."""
        if not sent.is_acked or not sent.handle or sent.kind in (Kind.TIMED, Kind.UNDECIDED):
            return
        give_up = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < give_up:
            sent.answers.append(self._end(sent))
            if sent.answers[-1] is not Answer.UNKNOWN:
                break
            time.sleep(RETRY_SECONDS)  # a service is being started again
        if sent.answers[-1] is Answer.UNKNOWN:
            self.problems.append(f"{sent.name}: no answer within {WAIT_SECONDS_MAX:g} s: {self.last_error}")
        is_verdict = sent.kind is not Kind.RECALLED
        if is_verdict and sent.answers[0] is Answer.NOT_FOUND:
            self.problems.append(f"{sent.name}: the half message was not found for its first verdict")

    def _end(self, sent: Sent) -> Answer:
        options = {"timeout": WAIT_SECONDS_MAX, "wait_for_ready": True}
        try:
            if sent.kind is Kind.RECALLED:
                self._stub.RecallMessage(
                    pb.RecallMessageRequest(topic=self._topic, recall_handle=sent.handle), **options
                )
            else:
                resolution = 1 if sent.kind is Kind.COMMITTED else 2
                request = pb.EndTransactionRequest(topic=self._topic, transaction_id=sent.handle, resolution=resolution)
                self._stub.EndTransaction(request, **options)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return Answer.NOT_FOUND
            self._note_unless_unknown(error, sent, "end")
            return Answer.UNKNOWN
        return Answer.DONE

    def _note_unless_unknown(self, error: grpc.RpcError, sent: Sent, what: str) -> None:
        self.last_error = f"{error.code()} {error.details()}"
        if error.code() not in UNKNOWN:
            self.problems.append(f"{sent.name}: {what} was answered {error.code()} {error.details()}")


class Sender:
    """Sends messages of every kind, one after the other, in a thread."""

    def __init__(self, address: str, seed: int, topic: str = TOPIC, flush: FlushMode = FLUSH_MODE_SYNC) -> None:
        self.work = Work(address, topic=topic, flush=flush)
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the message in hand."""
        self._stopping.set()
        self._thread.join(2 * WAIT_SECONDS_MAX)
        assert not self._thread.is_alive(), "a sender hangs"
        self.work.close()

    def _run(self) -> None:
        open_ends: list[Sent] = []
        while not self._stopping.is_set():
            open_ends.append(self.work.send(self._random.choice(list(Kind)), self._random))
            self._stopping.wait(PACE_SECONDS if open_ends[-1].is_acked else RETRY_SECONDS)
            while open_ends and (len(open_ends) > 5 or self._random.random() < 0.5):
                self.work.end(open_ends.pop(self._random.randrange(len(open_ends))))
        for sent in open_ends:
            self.work.end(sent)


def drain(services: Services) -> schedule_pb.GetStatusResponse:
    """Return when no message waits for a time any more, and queues and index are built."""
    stub = services.running("schedule").stub
    status = schedule_pb.GetStatusResponse()

    def is_drained() -> bool:
        status.CopyFrom(stub.GetStatus(schedule_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX, wait_for_ready=True))
        is_known = not status.catching_up and status.next_offset == status.log_end_offset
        return is_known and status.delayed_count + status.timer_count == 0

    wait_until(is_drained, lambda: f"something waits still: {status}", poll_seconds=0.2)
    services.wait_until_built()
    wait_until(is_drained, lambda: f"something waits again: {status}", poll_seconds=0.2)
    return status


def pending_problems(services: Services, sent: list[Sent]) -> list[str]:
    """Compares the half messages that wait, as the service lists them, with what was sent."""
    stub = services.running("schedule").stub
    names: list[str] = []
    token = ""
    while True:
        request = schedule_pb.ListPendingTransactionsRequest(page_size=1000, page_token=token)
        page = stub.ListPendingTransactions(request, timeout=WAIT_SECONDS_MAX)
        names += [row.unique_key for row in page.transactions]
        token = page.next_page_token
        if not token:
            break
    problems = [f"{name} is listed twice" for name in set(names) if names.count(name) > 1]
    for each in sent:
        is_pending = each.is_pending()
        if is_pending is not None and is_pending != (each.name in names):
            problems.append(f"{each.name} is {'not ' if is_pending else ''}pending: {each}")
    return problems


def log_problems(store: Path, sent: list[Sent], early_millis_max: int = 0) -> list[str]:
    """Judges a store that nobody has open.

    Args:
        store: its root.
        sent: all messages.
        early_millis_max: excused.
    """
    problems: list[str] = []
    frames = read_frames(store, problems)
    problems += check_queues(store, frames)
    return problems + sent_problems(frames, sent, early_millis_max)


def sent_problems(
    frames: Iterable[Frame], sent: Iterable[Sent], early_millis_max: int = 0, topic: str = TOPIC
) -> list[str]:
    """What the records of a log say against the answers; arguments as `log_problems`, and the topic of the messages."""
    problems: list[str] = []
    copies: defaultdict[str, list[int]] = defaultdict(list)
    waited: dict[str, int] = {}
    for frame in frames:
        if frame.topic == topic:
            copies[frame.message_id].append(frame.store_time_millis)
        elif frame.topic == DELAY_TOPIC:
            waited[frame.message_id] = frame.store_time_millis
    for each in sent:
        times = copies.pop(each.name, [])
        if len(times) not in each.copy_counts():
            problems.append(f"{each.name} is there {len(times)} times, not {each.copy_counts()}: {each}")
        due = waited.get(each.name, 0) + DELAY_SECONDS[0] * 1000 if each.kind is Kind.DELAYED else each.delivery_millis
        problems += [f"{each.name} came {due - at} ms early: {each}" for at in times if at < due - early_millis_max]
        if each.kind is Kind.DELAYED and times and each.name not in waited:
            problems.append(f"{each.name} did not wait")
    return problems + [f"{name} was never sent" for name in copies]
