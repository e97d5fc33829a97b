"""What waits goes from here to the real broker and back: each message comes once and not early, whoever has the store then."""

import contextlib
import pathlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.calling.client import ServiceClient
from services.rpcs import schedule as rpc
from tests.rocketmq import broker_calls, real_broker
from tests.rocketmq.broker_calls import Stored, stored
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

TOPIC = "T"
BROKER_SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 4000, "mappedFileSizeTimerLog": 8192}
OUR_SIZES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_COMMITLOG_TIMER_LOG_FILE_SIZE_BYTES": "8192",
}
# Until a broker has started, and until the last of what is sent for it is due; so many times as long when the machine was so
# busy that a broker started too late to be told of a recall.
BROKER_SECONDS, BACK_SECONDS = 25, 75
PATIENCE = (1.0, 2.5)
RECALL_MILLIS_MIN = 10_000
LEVELS = {1: 1, 4: 30, 5: 60}  # seconds, of the levels that are used


class Site:
    """A store root that Reput and the real broker open in turn.

    Args:
        work: a directory.

    Attributes:
        due: when each message is due (ms since 1970), by body.
    """

    def __init__(self, work: pathlib.Path, version: str) -> None:
        self.work = work
        work.mkdir(exist_ok=True)
        self.version = version
        self.store = work / "store"
        self.due: dict[str, int] = {}

    @contextlib.contextmanager
    def reput(self) -> Iterator[HostedStack]:
        """Reput on the store."""
        with hosted_stack(self.store, settings=OUR_SIZES) as stack:
            yield stack

    @contextlib.contextmanager
    def broker(self, name: str, **settings: object) -> Iterator[int]:
        """The real broker on the store; its port."""
        broker = real_broker.RealRocketMQ(
            self.store,
            self.work / name,
            version=self.version,
            recallMessageEnable="true",
            **BROKER_SIZES,
            **settings,
        )
        try:
            broker.start()
            yield broker.broker_port
        finally:
            broker.stop()

    def timer(self, stack: HostedStack, body: str, seconds: float) -> message_pb2.AppendResult:
        """Send a message here that waits for a time."""
        self.due[body] = _now_millis() + int(seconds * 1000)
        (result,) = _append(stack, body, properties={"TIMER_DELIVER_MS": str(self.due[body])})
        return result

    def level(self, stack: HostedStack, body: str, level: int) -> None:
        """Send a message here that waits for a delay level."""
        _append(stack, body, delay_level=level)
        self.due[body] = self._stored_at("SCHEDULE_TOPIC_XXXX", body) + LEVELS[level] * 1000

    def broker_timer(self, port: int, body: str, seconds: float) -> str:
        """Send a message to the broker that waits for a time; its unique key."""
        self.due[body] = _now_millis() + int(seconds * 1000)
        return broker_calls.send(port, TOPIC, body, TIMER_DELIVER_MS=str(self.due[body]))

    def broker_level(self, port: int, body: str, level: int) -> None:
        """Send a message to the broker that waits for a delay level."""
        broker_calls.send(port, TOPIC, body, DELAY=str(level))
        self.due[body] = self._stored_at("SCHEDULE_TOPIC_XXXX", body) + LEVELS[level] * 1000

    def waits(self, body: str) -> Stored:
        """The record of a message that waits for a time."""
        return next(one for one in stored(self.store, "rmq_sys_wheel_timer") if one.body == body)

    def came(self) -> Counter[str]:
        """How often each message is in its topic."""
        return Counter(one.body for one in stored(self.store, TOPIC))

    def wait_for(self, *bodies: str) -> None:
        """Return once these messages are in their topic."""
        wait_until(
            lambda: set(bodies) <= set(self.came()),
            lambda: f"{bodies} come, not only {self.came()}",
            poll_seconds=0.2,
        )

    def check(self, bodies: Sequence[str]) -> None:
        """Exactly these messages are in their topic, each once and none before its time."""
        copies = stored(self.store, TOPIC)
        assert Counter(one.body for one in copies) == Counter(bodies)
        early = {one.body: one.store_millis - self.due[one.body] for one in copies if one.body in self.due}
        assert {body: millis for body, millis in early.items() if millis < 0} == {}

    def _stored_at(self, topic: str, body: str) -> int:
        return next(one.store_millis for one in stored(self.store, topic) if one.body == body)


def _append(stack: HostedStack, body: str, **fields: object) -> Sequence[message_pb2.AppendResult]:
    request = pb.AppendMessagesRequest(messages=[new_message(TOPIC, body.encode(), queue_id=0, **fields)])
    results: Sequence[message_pb2.AppendResult] = stack.gateway.AppendMessages(
        request, timeout=WAIT_SECONDS_MAX
    ).results
    return results


def _now_millis() -> int:
    return time.time_ns() // 1_000_000


def _create_topic(stack: HostedStack) -> None:
    kind = message_pb2.MESSAGE_TYPE_MIXED
    stack.gateway.CreateTopic(
        pb.CreateTopicRequest(topic=TOPIC, queue_count=1, message_type=kind), timeout=WAIT_SECONDS_MAX
    )


@pytest.mark.parametrize("version", [real_broker.OLDER, pytest.param(real_broker.VERSION, marks=pytest.mark.release)])
def test_timers_and_delay_levels_go_to_a_broker_and_back(tmp_path: pathlib.Path, version: str) -> None:
    assert any(_go_both_ways(Site(tmp_path / str(patience), version), patience) for patience in PATIENCE)


def _go_both_ways(site: Site, patience: float) -> bool:
    """False when the broker started too late."""
    back_seconds = BACK_SECONDS * patience
    with site.reput() as stack:
        _create_topic(stack)
        site.timer(stack, "our timer, here", 1.5)
        site.level(stack, "our level, here", 1)
        site.timer(stack, "our timer, there", BROKER_SECONDS * patience)
        site.level(stack, "our level, there", 4)
        site.timer(stack, "our timer, back", back_seconds)
        site.timer(stack, "our timer, recalled there", back_seconds - 5)
        site.wait_for("our timer, here", "our level, here")
    recalled = site.waits("our timer, recalled there")
    with site.broker("first") as port:
        if _now_millis() > site.due["our timer, recalled there"] - RECALL_MILLIS_MIN:
            return False
        slot_millis = int(recalled.properties["TIMER_OUT_MS"])
        broker_calls.recall(port, TOPIC, slot_millis + 1, recalled.unique_key)
        site.broker_timer(port, "their timer, there", 3)
        their_key = site.broker_timer(port, "their timer, recalled there", back_seconds - 25)
        site.broker_timer(port, "their timer, back", back_seconds - 20)
        site.broker_level(port, "their level, there", 1)
        site.broker_level(port, "their level, back", 5)
        their_slot = int(site.waits("their timer, recalled there").properties["TIMER_OUT_MS"])
        broker_calls.recall(port, TOPIC, their_slot + 1, their_key)
        there = ("our timer, there", "our level, there", "their timer, there", "their level, there")
        site.wait_for(*there)
    with site.reput() as stack:
        site.level(stack, "the last one", 1)
        back = ("our timer, back", "their timer, back", "their level, back", "the last one")
        site.wait_for(*back)
        last = max(site.due.values())
        wait_until(lambda: _now_millis() > last + 2_000, "all would have come")
        site.check(("our timer, here", "our level, here", *there, *back))
    return True


HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class Halves:
    """The half messages of a store, and what is said about them.

    Args:
        store: the store root.
    """

    def __init__(self, store: pathlib.Path) -> None:
        self._store = store

    def records(self, body: str) -> list[Stored]:
        """The records of a half message: it is stored again when its producer is asked."""
        return [one for one in stored(self._store, HALF_TOPIC) if one.body == body]

    def wait_until_asked(self, body: str) -> None:
        """Return once the broker has stored a half message again."""
        wait_until(lambda: len(self.records(body)) > 1, f"{body} is stored again", poll_seconds=0.2)

    def count(self) -> int:
        """Records of half messages."""
        return len(stored(self._store, HALF_TOPIC))

    def ended(self) -> set[int]:
        """Positions that have had their verdict."""
        return {int(one) for op in stored(self._store, OP_TOPIC) for one in op.body.split(",") if one}


def _half(stack: HostedStack, body: str) -> str:
    """Send a half message; its transaction id."""
    (result,) = _append(stack, body, properties={"TRAN_MSG": "true", "PGROUP": "tests"})
    return result.transaction_id


COMMIT, ROLLBACK = (
    pb.TRANSACTION_RESOLUTION_COMMIT,
    pb.TRANSACTION_RESOLUTION_ROLLBACK,
)


@contextlib.contextmanager
def _schedule(stack: HostedStack) -> Iterator[ServiceClient]:
    client = ServiceClient("schedule", stack.addresses["schedule"])
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_half_messages_go_to_a_broker_and_back(tmp_path: pathlib.Path, version: str) -> None:
    site = Site(tmp_path, version)
    halves = Halves(site.store)
    # It asks producers early, and there are none: it stores each half message again that waits.
    checks = {"transactionTimeOut": 2_000, "transactionCheckInterval": 8_000}
    with site.reput() as stack, _schedule(stack) as schedule:
        _create_topic(stack)
        committed, rolled_back, *_ = [
            _half(stack, body)
            for body in ("commit here", "rollback here", "commit there", "rollback there", "commit back")
        ]
        schedule.call(
            rpc.END_TRANSACTION, schedule_pb.EndTransactionRequest(transaction_id=committed, resolution=COMMIT)
        )
        schedule.call(
            rpc.END_TRANSACTION, schedule_pb.EndTransactionRequest(transaction_id=rolled_back, resolution=ROLLBACK)
        )
    with site.broker("first", **checks) as port:
        broker_calls.send_half(port, TOPIC, "their commit there")
        broker_calls.send_half(port, TOPIC, "their commit back")
        verdicts = {"commit there": broker_calls.COMMIT, "rollback there": broker_calls.ROLLBACK}
        ended: list[Stored] = []
        for body, verdict in (verdicts | {"their commit there": broker_calls.COMMIT}).items():
            ended.append(halves.records(body)[-1])
            broker_calls.end_transaction(port, ended[-1], verdict)
        wait_until(lambda: {one.queue_offset for one in ended} <= halves.ended(), halves.ended)
        halves.wait_until_asked("commit back")
        halves.wait_until_asked("their commit back")
    for body in ("commit here", "rollback here"):
        assert len(halves.records(body)) == 1, body
    assert [halves.records(one.body)[-1] for one in ended] == ended
    with site.reput() as stack, _schedule(stack) as schedule:
        pending = schedule.call(rpc.LIST_PENDING_TRANSACTIONS, schedule_pb.ListPendingTransactionsRequest(topic=TOPIC))
        keys = {halves.records(body)[0].unique_key for body in ("commit back", "their commit back")}
        assert sorted(one.unique_key for one in pending.transactions) == sorted(keys)
        for body in ("commit back", "their commit back"):
            key = halves.records(body)[0].unique_key
            request = schedule_pb.EndTransactionRequest(topic=TOPIC, unique_key=key, resolution=COMMIT)
            schedule.call(rpc.END_TRANSACTION, request)
    count = halves.count()
    with site.broker("second", **checks) as port:
        broker_calls.send_half(port, TOPIC, "the last one")
        halves.wait_until_asked("the last one")
    assert halves.count() == count + len(halves.records("the last one"))
    site.check(("commit here", "commit there", "commit back", "their commit there", "their commit back"))
