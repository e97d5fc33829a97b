"""Transactions: verdicts of producers (37), and the questions to them (39).

    END_TRANSACTION ──▶ the half message that its offset names ──▶ schedule service
    schedule service ══ check of a topic ══▶ Producers ══▶ a connection of its producer group ══ CHECK_TRANSACTION_STATE

RocketMQ asks any producer of the group (PGROUP) that a half message names. The schedule service asks by topic, so a door keeps
which topics the half messages of a producer group are of: from those that were sent here, and when a group's first heartbeat
comes from those that wait.

Sources: `EndTransactionProcessor`, `AbstractTransactionalMessageCheckListener`, `Broker2Client`.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping

import structlog

from gateway.ports.deadline import Deadline
from gateway.ports.shard import get_record
from gateway.ports.waiting import LIST_TRANSACTIONS
from gateway.remoting.door import Ask, Handler, RefusedError
from gateway.remoting.door_clients import DoorClient
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.records import record_of
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import Command, FrameError
from services.rocketmq.remoting_server import Connection
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.format.delivery.waiting_handles import TRANSACTION, WaitingHandle, encode_handle
from store.format.properties import PRODUCER_GROUP, REAL_TOPIC
from store.format.topic import HALF_TOPIC

# Bits 8 and 4 of `sysFlag`: MessageSysFlag.TRANSACTION_COMMIT_TYPE and TRANSACTION_ROLLBACK_TYPE.
RESOLUTIONS: Mapping[int, "gateway_pb.TransactionResolution"] = {
    8: gateway_pb.TRANSACTION_RESOLUTION_COMMIT,
    12: gateway_pb.TRANSACTION_RESOLUTION_ROLLBACK,
}
# Topics of producer groups that are remembered; the oldest group goes first.
GROUP_COUNT_MAX = 16_384
GROUP_TOPIC_COUNT_MAX = 1_024
# Half messages that wait, of which a new group's are looked for: pages.
PAGE_COUNT_MAX, PAGE_SIZE = 10, 1_000

_log = structlog.get_logger("reput.remoting")


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    transactions = Transactions(shard)
    shard.on_half.append(transactions.note_half)
    shard.on_beat.append(transactions.settle)
    shard.clients.on_close.append(transactions.forget)
    return {RequestCode.END_TRANSACTION: transactions.end}


class Transactions:
    """See the top of this file; thread-safe.

    Args:
        shard: the shard.
    """

    def __init__(self, shard: DoorShard) -> None:
        self._shard = shard
        self._lock = threading.Lock()
        self._topics: OrderedDict[str, set[str]] = OrderedDict()  # by producer group
        self._sessions: dict[Connection, DoorSession] = {}

    def end(self, ask: Ask) -> None:
        """37: a verdict; it is in the log when this is answered."""
        said = ask.number("commitOrRollback")
        resolution = RESOLUTIONS.get(said)
        if resolution is None:  # no verdict yet: the transaction stays as it is
            ask.answer()
            return
        ask.work(lambda: self._end(ask, resolution))

    def _end(self, ask: Ask, resolution: "gateway_pb.TransactionResolution") -> None:
        offset = ask.number("commitLogOffset")
        try:
            record = get_record(self._shard.shard, offset, Deadline.after(CALL_SECONDS))
        except (RecordNotFoundError, OffsetOutOfRangeError) as error:
            raise _not_found() from error
        topic = record.properties.get(REAL_TOPIC, "")
        if record.topic != HALF_TOPIC or not topic:
            raise _not_found()
        if record.properties.get(PRODUCER_GROUP, "") != ask.text("producerGroup"):
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != ask.number("tranStateTableOffset"):
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        handle = WaitingHandle(topic, self._shard.broker_name, offset, record.unique_key)

        def ended(outcome: pb.EndTransactionResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                ask.refuse(outcome)
            else:
                ask.answer()

        self._shard.endings.end_transaction(
            topic,
            encode_handle(TRANSACTION, handle),
            resolution,
            CALL_SECONDS,
            ended,
            is_from_check=ask.flag("fromTransactionCheck"),
        )

    # --- producers that can be asked

    def note_half(self, producer_group: str, topic: str) -> None:
        """A half message of a group was sent."""
        if self._note(producer_group, (topic,)):
            for client in self._shard.clients.producers(producer_group):
                self._settle(client)

    def settle(self, client: DoorClient) -> None:
        """A client has said for which groups it sends; may wait for the schedule service."""
        new = [group for group in client.producer_groups if group not in self._topics]
        if new:
            self._find_waiting(new)
        self._settle(client)

    def _settle(self, client: DoorClient) -> None:
        topics: set[str] = set()
        with self._lock:
            for group in client.producer_groups:
                topics |= self._topics.get(group, set())
            session = self._sessions.get(client.connection)
            if session is None and topics and not client.connection.is_closed:
                session = self._sessions[client.connection] = DoorSession(self._shard, client.connection)
        if session is not None:
            self._shard.producers.settle(client.client_id, session, sorted(topics))
            if client.connection.is_closed:
                self.forget(client.connection)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        with self._lock:
            session = self._sessions.pop(connection, None)
        if session is not None:
            self._shard.producers.drop(session)

    def _note(self, producer_group: str, topics: "tuple[str, ...]") -> bool:
        """Whether a topic of the group was not known."""
        with self._lock:
            known = self._topics.setdefault(producer_group, set())
            self._topics.move_to_end(producer_group)
            before = len(known)
            if before < GROUP_TOPIC_COUNT_MAX:
                known.update(topics)
            if len(self._topics) > GROUP_COUNT_MAX:
                self._topics.popitem(last=False)
            return len(known) > before

    def _find_waiting(self, producer_groups: list[str]) -> None:
        """Learn which topics the half messages of groups are of that wait already, such as before a start of this door."""
        found: dict[str, set[str]] = {group: set() for group in producer_groups}
        token = ""
        try:
            for _ in range(PAGE_COUNT_MAX if self._shard.shard.has(LIST_TRANSACTIONS) else 0):
                request = pb.ListPendingTransactionsRequest(page_size=PAGE_SIZE, page_token=token)
                answer = self._shard.shard.call(LIST_TRANSACTIONS, request, Deadline.after(CALL_SECONDS))
                for each in answer.transactions:
                    if each.producer_group in found:
                        found[each.producer_group].add(each.topic)
                token = answer.next_page_token
                if not token:
                    break
        except StoreError as error:  # its next heartbeat looks again
            _log.info("transactions.not_listed", error=error.message)
            return
        for group, topics in found.items():
            self._note(group, tuple(topics))


class DoorSession:
    """A Session: a connection of a producer.

    Args:
        shard: the shard.
        connection: of the producer.
    """

    def __init__(self, shard: DoorShard, connection: Connection) -> None:
        self._shard = shard
        self._connection = connection

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """See Session."""
        message = check.message
        client = self._shard.clients.of(self._connection)
        if client is None or message.properties.get(PRODUCER_GROUP, "") not in client.producer_groups:
            return False
        fields = {
            "topic": message.topic,
            "commitLogOffset": str(message.commit_log_offset),
            "tranStateTableOffset": str(message.queue_offset),
            "msgId": message.unique_key,
            "transactionId": message.unique_key,
            "offsetMsgId": message.offset_msg_id,
            "bname": self._shard.broker_name,
        }
        try:
            self._connection.tell(Command(RequestCode.CHECK_TRANSACTION_STATE, fields, record_of(message)))
        except (StoreError, FrameError) as error:
            _log.warning("transactions.not_asked", topic=message.topic, error=str(error))
            return False
        return not self._connection.is_closed


def _not_found() -> RefusedError:
    return RefusedError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
