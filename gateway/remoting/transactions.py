"""Transactions: verdicts of producers (37), and the questions to them (39).

    END_TRANSACTION ──▶ the half message that its offset names ──▶ schedule service
    schedule service ══ check ══▶ a gateway with a producer of its group ══▶ one of its connections ══ CHECK_TRANSACTION_STATE

A half message names the group (PGROUP) of which any producer knows its verdict. Gateways tell the schedule services which
groups have producers at their doors, so a check reaches one wherever it is connected, and counts only then.

Sources: `EndTransactionProcessor`, `AbstractTransactionalMessageCheckListener`, `Broker2Client`.
"""

import threading
from collections.abc import Mapping

import structlog

from gateway.ports.deadline import Deadline
from gateway.ports.shard import get_record
from gateway.remoting.door import Ask, Handler, RefusedError, peer_of
from gateway.remoting.door_clients import DoorClient
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.records import record_of
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import Command, FrameError
from services.rocketmq.remoting_server import Connection
from services.serving.admission.shares import client_of_name
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.format.delivery.waiting_handles import TRANSACTION, WaitingHandle, encode_handle
from store.format.properties import PRODUCER_GROUP, REAL_TOPIC
from store.format.topic import HALF_TOPIC

# Bits 8 and 4 of `sysFlag`: MessageSysFlag.TRANSACTION_COMMIT_TYPE and TRANSACTION_ROLLBACK_TYPE.
RESOLUTIONS: Mapping[int, "gateway_pb.TransactionResolution"] = {
    8: gateway_pb.TRANSACTION_RESOLUTION_COMMIT,
    12: gateway_pb.TRANSACTION_RESOLUTION_ROLLBACK,
}

# Every Java client names it in its heartbeats; no half message does.
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"

_log = structlog.get_logger("reput.remoting")


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    transactions = Transactions(shard)
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
            record = get_record(self._shard.whole_shard, offset, Deadline.after(CALL_SECONDS))
        except (RecordNotFoundError, OffsetOutOfRangeError) as error:
            raise _not_found() from error
        topic = record.properties.get(REAL_TOPIC, "")
        if record.topic != HALF_TOPIC or not topic or not ask.rights.sees(topic):
            raise _not_found()
        ask.rights.appends(topic, 1)
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

    def settle(self, client: DoorClient) -> None:
        """A client has said for which groups it sends."""
        groups = client.producer_groups - {INNER_PRODUCER_GROUP}
        if client.access is not None and not client.access.may_write_some:
            groups = frozenset()  # it may see no check
        with self._lock:
            session = self._sessions.get(client.connection)
            if session is None and groups and not client.connection.is_closed:
                session = self._sessions[client.connection] = DoorSession(self._shard, client.connection)
        if session is not None:
            owner = client_of_name(client.caller_name or peer_of(client.connection))
            self._shard.producers.settle(client.client_id, session, (), groups, owner)
            if client.connection.is_closed:
                self.forget(client.connection)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        with self._lock:
            session = self._sessions.pop(connection, None)
        if session is not None:
            self._shard.producers.drop(session)


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
        if client.access is not None and not client.access.may_write(message.topic):
            return False  # a check has the message
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
