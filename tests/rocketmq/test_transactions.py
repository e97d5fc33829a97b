"""Records of transactions beside those of RocketMQ: a real broker commits, rolls back, checks and gives up."""

import pathlib
import time

import pytest

from benchmarks.sides import remoting
from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.transactions.half_messages import committed, ended_by, given_up, op_records, renewed
from store.format.properties import MOVED_FROM, REAL_QUEUE_ID, REAL_TOPIC, TRAN_MSG, TRANSACTION_CHECK_TIMES
from store.format.record import decode_record
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.rocketmq import real_broker
from tests.schedule_svc.transactions.test_half_messages import stored
from tests.support.fixture_stores import walk_frames
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

SEND_MESSAGE, END_TRANSACTION = 10, 37
PREPARED, COMMIT, ROLLBACK = "4", "8", "12"
GROUP, TOPIC = "producers", "Orders"
CHECKS_MAX = 2


def send_half(port: int, body: bytes, unique_key: str) -> None:
    """A half message, as `TransactionMQProducer` sends it."""
    properties = {TRAN_MSG: "true", "PGROUP": GROUP, "UNIQ_KEY": unique_key, "TAGS": "t", "KEYS": "k1 k2", "own": "x"}
    fields = {
        "producerGroup": GROUP,
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "2",
        "sysFlag": PREPARED,
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "5",
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    remoting.call(port, SEND_MESSAGE, fields, body)


def end(port: int, half_offset: int, commit_log_offset: int, verdict: str) -> None:
    """A verdict."""
    fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(half_offset),
        "commitLogOffset": str(commit_log_offset),
        "commitOrRollback": verdict,
        "fromTransactionCheck": "true",
        "msgId": "",
        "transactionId": "",
    }
    remoting.call(port, END_TRANSACTION, fields)


def records(store: pathlib.Path) -> dict[str, list[StoredMessage]]:
    """What the log has, by topic."""
    found: dict[str, list[StoredMessage]] = {}
    for _, frame in walk_frames(store):
        record = decode_record(frame)
        found.setdefault(record.topic, []).append(stored(record))
    return found


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_what_becomes_of_half_messages_is_what_the_real_broker_writes(tmp_path: pathlib.Path, version: str) -> None:
    store = tmp_path / "store"
    settings = {
        "transactionTimeOut": 10_000,  # the verdicts come before it, also where the machine is busy
        "transactionCheckInterval": 1_000,
        "transactionCheckMax": CHECKS_MAX,
        "transactionOpBatchInterval": 100,
        "mappedFileSizeCommitLog": 1 << 20,
    }
    with real_broker.real_rocketmq(store, tmp_path / "work", version=version, **settings) as broker:
        port = broker.broker_port
        for number in range(4):
            send_half(port, f"m{number}".encode(), f"{number:032X}")
        first, second = records(store)[HALF_TOPIC][:2]
        end(port, first.queue_offset, first.commit_log_offset, COMMIT)
        end(port, second.queue_offset, second.commit_log_offset, ROLLBACK)
        wait_until(
            lambda: len(records(store).get(CHECK_MAX_TIME_TOPIC, ())) == 2,
            lambda: f"two are given up: {[(topic, len(found)) for topic, found in records(store).items()]}",
            poll_seconds=0.2,
        )
        broker.stop()
        found = records(store)

    halves = {half.commit_log_offset: half for half in found[HALF_TOPIC]}
    (message,) = found[TOPIC]
    if version == real_broker.OLDER:  # a defect that 5.5.0 does not have
        del message.properties[REAL_TOPIC], message.properties[REAL_QUEUE_ID]
    ours = committed(halves[message.prepared_transaction_offset])
    assert (ours.topic, ours.queue_id, ours.body, ours.flag, ours.sys_flag, dict(ours.properties)) == (
        message.topic,
        message.queue_id,
        message.body,
        message.flag,
        message.sys_flag,
        dict(message.properties),
    )
    for op in found[OP_HALF_TOPIC]:
        (our_op,) = op_records(ended_by(op))
        assert (our_op.body, dict(our_op.properties)) == (op.body, dict(op.properties))
    originals = {half.unique_key: half for half in found[HALF_TOPIC] if TRANSACTION_CHECK_TIMES not in half.properties}
    for half in found[HALF_TOPIC]:
        count = int(half.properties.get(TRANSACTION_CHECK_TIMES, "0"))
        if count:
            ours = renewed(originals[half.unique_key], count)
            del ours.properties[MOVED_FROM]
            assert dict(ours.properties) == dict(half.properties)
            assert half.flag == 0, "RocketMQ loses it"
            assert ours.flag == 5
    for theirs in found[CHECK_MAX_TIME_TOPIC]:
        last = max(
            (half for half in found[HALF_TOPIC] if half.unique_key == theirs.unique_key),
            key=lambda half: half.queue_offset,
        )
        assert last.properties[TRANSACTION_CHECK_TIMES] == str(CHECKS_MAX)
        ours = given_up(last)
        del ours.properties[MOVED_FROM]
        assert (ours.topic, ours.queue_id, ours.body, ours.flag, ours.sys_flag, dict(ours.properties)) == (
            theirs.topic,
            theirs.queue_id,
            theirs.body,
            theirs.flag,
            theirs.sys_flag,
            dict(theirs.properties),
        )
