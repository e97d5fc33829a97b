"""Members over gRPC are asked: what they do now is what the gateway knows, by the names of RocketMQ's ConsumerRunningInfo; the
stacks of their threads, and how they consume a message, they are asked on their Telemetry streams, as RocketMQ's proxy does.
"""

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.timers import Timers
from gateway.groups.asked_members import (
    CONSUME_SECONDS,
    RUNNING_INFO_SECONDS,
    Receiver,
    Told,
    document_of,
    row_of_subscription,
)
from gateway.rocketmq.clients import Clients, KnownClient
from gateway.rocketmq.messages import to_pulled
from gateway.rocketmq.sessions import TelemetrySession
from reput.consumer.v1.consumer_service_pb2 import WatchArrivalsResponse
from reput.message.v1.message_pb2 import StoredMessage
from services.rocketmq.fastjson import dump_bytes
from store.errors import ServiceUnavailableError, StoreError, UnsupportedStoreError

# As the proxy registers them at brokers.
CONSUME_TYPES = dict.fromkeys(("simple consumer", "pull consumer", "lite simple consumer"), "CONSUME_ACTIVELY")
# As the proxy tells how a message was consumed.
CONSUME_RESULTS = {
    v2.OK: "CR_SUCCESS",
    v2.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    v2.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class MessagingMembers:
    """A Way to members over gRPC that have told this gateway their settings, or gave it a sign of life; thread-safe.

    Args:
        clients: the clients that live.
        timers: end the wait for an answer.
        clock: the timers', in seconds.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        clients: Clients,
        timers: Timers,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clients = clients
        self._timers = timers
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._sessions: dict[str, TelemetrySession] = {}

    def settle(self, client_id: str, session: TelemetrySession) -> None:
        """A consumer has told its settings on this stream: it is asked there."""
        with self._lock:
            self._sessions[client_id] = session

    def drop(self, client_id: str, session: TelemetrySession) -> None:
        """A stream has ended."""
        with self._lock:
            if self._sessions.get(client_id) is session:
                del self._sessions[client_id]

    def tell_lost(self, client_id: str, lite_topics: Iterable[str]) -> None:
        """A client has lost lite topics to others: its program hears of it, if its stream is one of this gateway."""
        with self._lock:
            session = self._sessions.get(client_id)
        if session is None:
            return
        for lite_topic in lite_topics:
            lost = v2.NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
            session.tell(v2.TelemetryCommand(notify_unsubscribe_lite_command=lost))

    def hear(self, broker_name: str, arrivals: WatchArrivalsResponse) -> None:
        """What a shard says that concerns members."""
        for lost in arrivals.lost_lite_topics:
            if self._find(lost.consumer_group, lost.client_id) is not None:
                self.tell_lost(lost.client_id, (lost.lite_topic,))

    def ask(self, consumer_group: str, client_id: str, told: Receiver, *, with_stack_trace: bool) -> bool:
        """See Way."""
        known = self._find(consumer_group, client_id)
        if known is None:
            return False
        document = self._document(known)
        if not with_stack_trace:
            told(Told(dump_bytes(document), is_by_gateway=True))
            return True

        def answered(command: v2.TelemetryCommand) -> Told:
            trace = command.thread_stack_trace.thread_stack_trace
            return Told(dump_bytes(document | {"jstack": trace}), is_by_gateway=True)

        question = v2.TelemetryCommand(print_thread_stack_trace_command=v2.PrintThreadStackTraceCommand())
        self._put(known, question, RUNNING_INFO_SECONDS, answered, told, (v2.OK, v2.CODE_UNSPECIFIED))
        return True

    def consume(self, consumer_group: str, client_id: str, message: StoredMessage, told: Receiver) -> bool:
        """See Way."""
        known = self._find(consumer_group, client_id)
        if known is None:
            return False
        if not known.facts.kind.endswith("push consumer"):
            told(
                UnsupportedStoreError(
                    f"the member {client_id} of {consumer_group} is a {known.facts.kind or 'member'} over gRPC, which takes "
                    "its messages itself: only a push consumer consumes one that it is given"
                )
            )
            return True
        began_at = self._clock()

        def answered(command: v2.TelemetryCommand) -> Told:
            document: Mapping[str, object] = {
                "autoCommit": True,
                "consumeResult": CONSUME_RESULTS[command.status.code],
                "order": False,
                "remark": "from gRPC client",
                "spentTimeMills": int((self._clock() - began_at) * 1_000),
            }
            return Told(dump_bytes(document))

        question = v2.TelemetryCommand(verify_message_command=v2.VerifyMessageCommand(message=to_pulled(message)))
        self._put(known, question, CONSUME_SECONDS, answered, told, CONSUME_RESULTS)
        return True

    def _find(self, consumer_group: str, client_id: str) -> KnownClient | None:
        known = self._clients.find(client_id)
        return known if known is not None and known.facts.consumer_group == consumer_group else None

    def _put(
        self,
        known: KnownClient,
        question: v2.TelemetryCommand,
        seconds: float,
        answered: Callable[[v2.TelemetryCommand], Told],
        told: Receiver,
        codes: "Container[v2.Code]",
    ) -> None:
        """Ask a member on its stream; `told` gets what `answered` makes of an answer with one of these codes."""
        facts = known.facts
        name = f"the member {facts.client_id} of {facts.consumer_group}"
        key = object()
        tick = 0

        def receive(command: v2.TelemetryCommand | None) -> None:
            self._timers.drop(key, tick)
            answer: Told | StoreError
            if command is None:
                answer = _unavailable(f"{name} did not answer within {seconds:.0f} s, or its stream has ended")
            elif command.status.code not in codes:
                answer = _unavailable(f"{name} refuses: {command.status.message or command.status.code}")
            else:
                answer = answered(command)
            told(answer)

        with self._lock:
            session = self._sessions.get(facts.client_id)
        give_up = session.ask_member(question, receive) if session is not None else None
        if give_up is None:
            told(_unavailable(f"{name} has no Telemetry stream to this gateway that can be used now: ask again later"))
            return
        tick = self._timers.set(key, self._clock() + seconds, give_up)

    def _document(self, known: KnownClient) -> dict[str, object]:
        facts = known.facts
        properties = {
            "PROP_CLIENT_VERSION": facts.version,
            "PROP_CONSUME_ORDERLY": str(self._clients.is_ordered(facts.consumer_group) or False).lower(),
            "PROP_CONSUME_TYPE": CONSUME_TYPES.get(facts.kind, "CONSUME_PASSIVELY"),
            # Since when it is known here; mqadmin takes it for a moment (ms since 1970).
            "PROP_CONSUMER_START_TIMESTAMP": str(int((self._wall_clock() - self._clients.age_seconds(known)) * 1000)),
            "address": facts.address,
            "kind": facts.kind,
            "language": facts.language,
            "toldBy": "gateway",
        }
        return document_of(properties, map(row_of_subscription, facts.subscriptions))


def _unavailable(what: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(what, service="client")
