"""What is under way in a shard when one release leaves it, and the judge of how another one goes on with it.

    found       messages, found by key: each is there once
    acked       a group has acknowledged them: it never gets them again
    leased      the group has them, unacknowledged, for long: their handles are good at the next release
    dropped     the group has them, unacknowledged, for a moment: it gets them again
    unread      the group has not got them yet
    late        timers and delays: each comes once, when it is due
    half        open transactions: each is committed once
    position    where a group that pulls has stopped

All of it goes through the gateway's contracts, which every release has.
"""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1.message_pb2 import FLUSH_MODE_SYNC, AppendResult, NewMessage
from store.errors import StoreError
from tests.support.service import CHANNEL_OPTIONS
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.lasting_clients import GrpcPops

Answer = TypeVar("Answer")

TOPIC, GROUP, READER = "orders", "billing", "reader"
LONG, SHORT = Duration(seconds=600), Duration(seconds=2)
# Of the services: handles of one release are good at the next, as a shard keeps its secret; SHORT is taken as it is.
SETTINGS = {
    "REPUT_CONSUMER_RECEIPT_SECRET": "0f" * 16,
    "REPUT_GATEWAY_RECEIVE_INVISIBLE_MILLIS_MIN": "100",
    "REPUT_GATEWAY_POLL_MILLIS_MIN": "50",
}
LATE_SECONDS = 5
READ_COUNT = 3
CALL: dict[str, Any] = {"timeout": WAIT_SECONDS_MAX, "wait_for_ready": True}  # a busy machine connects late
DELAY_LEVEL = 2  # 5 s


@dataclass
class LeftWork:
    """See the top of this file; names are bodies and unique keys."""

    found: list[str] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    leased: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    half: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For a file beside a store."""
        return asdict(self)


class Clients:
    """A producer and a group at a gateway."""

    def __init__(self, gateway: str) -> None:
        self._channel = grpc.insecure_channel(gateway, options=CHANNEL_OPTIONS)
        self.stub = gateway_grpc.GatewayServiceStub(self._channel)
        self._pops = GrpcPops(gateway, TOPIC, "client-1")

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._pops.close()
        self._channel.close()

    def leave(self, about: str, count: int = 24) -> LeftWork:
        """Begin a little of everything and end none of it; `about` tells the names of two calls apart."""
        left = LeftWork()
        names = [f"{about}-{number:03}" for number in range(count)]
        for name in names:
            self._send(name)
        left.found = list(names)
        waiting = set(names)
        left.leased = self._take(waiting, 4, LONG)
        for name, handle in self._take(waiting, 8, LONG).items():
            assert self._ack(handle), name
            left.acked.append(name)
        left.dropped = list(self._take(waiting, 4, SHORT))  # last: they come again
        left.unread = sorted(waiting)
        position = pb.QueuePosition(topic=TOPIC, queue_id=0, broker_name="broker-a", consumer_offset=READ_COUNT)
        self.stub.CommitOffsets(pb.CommitOffsetsRequest(consumer_group=READER, positions=[position]), **CALL)
        self._send(f"{about}-delayed", delay_level=DELAY_LEVEL)
        due = Timestamp(seconds=int(time.time()) + LATE_SECONDS)
        self._send(f"{about}-timed", delivery_time=due)
        left.late = [f"{about}-delayed", f"{about}-timed"]
        for name in (f"{about}-half-1", f"{about}-half-2"):
            left.half[name] = self._send(name, properties={"TRAN_MSG": "true", "PGROUP": "makers"}).transaction_id
        return left

    def check(self, left: LeftWork, *, with_handles: bool = True) -> None:
        """Go on with all of it, and judge.

        Args:
            left: by `leave`, at this gateway or at one before it.
            with_handles: the leases are not over yet.
        """
        offsets = self.stub.GetOffsets(pb.GetOffsetsRequest(consumer_group=READER, topic=TOPIC), **CALL)
        assert READ_COUNT in [each.consumer_offset for each in offsets.positions], offsets
        for name in left.found:
            assert self.bodies(name) == [name]
        pending = self.stub.ListPendingTransactions(pb.ListPendingTransactionsRequest(), **CALL)
        # By their keys: half messages that waited for an hour are stored again, and get other ids; those of before stay good.
        assert {each.unique_key for each in pending.transactions} >= left.half.keys()
        for transaction_id in left.half.values():
            self._commit(transaction_id)
        if with_handles:
            for name, handle in left.leased.items():
                assert self._ack(handle), f"the handle of {name} is not good any more"
        wanted = {*left.dropped, *left.unread, *left.late, *left.half}
        if not with_handles:
            wanted |= left.leased.keys()
        got = self._drain(wanted)
        assert set(got) == wanted, f"not wanted: {set(got) - wanted}"
        assert set(got.values()) == {1}, got
        for name in (*left.late, *left.half):
            assert name in self.bodies(name), name

    def bodies(self, key: str) -> list[str]:
        """The messages of the topic with a key."""
        request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=key)
        answer = self.stub.QueryMessageByKey(request, **CALL)
        return [each.body.decode() for each in answer.messages]

    def _send(self, name: str, **fields: Any) -> AppendResult:
        message = NewMessage(topic=TOPIC, body=name.encode(), unique_key=name, keys=[name], tags="red", **fields)
        request = pb.AppendMessagesRequest(messages=[message], flush=FLUSH_MODE_SYNC)
        (result,) = self.stub.AppendMessages(request, **CALL).results
        return result

    def _take(self, waiting: set[str], count: int, hidden: Duration) -> dict[str, str]:
        """Get so many messages; their handles by name."""
        taken: dict[str, str] = {}

        def is_enough() -> bool:
            taken.update((one.name, one.handle) for one in self._pop(count - len(taken), hidden))
            return len(taken) >= count

        wait_until(is_enough, lambda: f"{count} messages, not {sorted(taken)}")
        waiting.difference_update(taken)
        return taken

    def _drain(self, wanted: Iterable[str]) -> Counter[str]:
        """Get and acknowledge all that comes, until everything wanted has come and nothing more comes."""
        got: Counter[str] = Counter()

        def is_over() -> bool:
            popped = list(self._pop(8, LONG))
            for one in popped:
                got[one.name] += 1
                assert self._ack(one.handle), one.name
            return not popped and got.keys() >= set(wanted)

        wait_until(is_over, lambda: f"missing {sorted(set(wanted) - got.keys())}", seconds=2 * WAIT_SECONDS_MAX)
        return got

    def _commit(self, transaction_id: str) -> None:
        """Until it is answered; behind an answer that did not come it may have been carried out."""
        request = pb.EndTransactionRequest(
            topic=TOPIC, transaction_id=transaction_id, resolution=pb.TRANSACTION_RESOLUTION_COMMIT
        )
        tries = itertools.count()

        def is_answered() -> bool:
            try:
                self.stub.EndTransaction(request, **CALL)
            except grpc.RpcError as error:
                is_done = next(tries) > 0 and error.code() is grpc.StatusCode.NOT_FOUND
                if error.code() is not grpc.StatusCode.UNAVAILABLE and not is_done:
                    raise
                return is_done
            return True

        wait_until(is_answered, f"the commit of {transaction_id}")

    def _ack(self, handle: str) -> bool:
        return answered(partial(self._pops.ack, GROUP, handle))

    def _pop(self, count: int, hidden: Duration):
        try:
            return self._pops.pop(GROUP, count, hidden, count)
        except StoreError:
            return []  # a service is being started


def answered(call: Callable[[], Answer]) -> Answer:
    """What a call answers, once it does: a service is being started, or connects late."""
    answers: list[Answer] = []

    def is_answered() -> bool:
        with contextlib.suppress(StoreError):
            answers.append(call())
        return bool(answers)

    wait_until(is_answered, "an answer")
    return answers[0]
