"""Reput as the HA slave of a real broker, and a real slave behind Reput (docs/adr/0064-rocketmqs-ha-protocol.md)."""

import pathlib
import shutil
from collections.abc import Callable

import grpc
import pytest

from benchmarks.sides import remoting
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.rocketmq import broker_calls, real_broker
from tests.support.ports import free_port
from tests.support.stack import HostedStack, Stack, hosted_stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

FILE_BYTES = 131_072
BROKER = {"mappedFileSizeCommitLog": FILE_BYTES, "mappedFileSizeConsumeQueue": 4000}
SETTINGS = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES), "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000"}
TOPIC = "Orders"


def send(broker: real_broker.RealRocketMQ, prefix: str, count: int, size: int = 1) -> None:
    """Send messages with keys that begin so."""
    for number in range(count):
        broker_calls.send(broker.broker_port, TOPIC, f"{number} " * size, KEYS=f"{prefix}{number}")


def log_end(broker: real_broker.RealRocketMQ) -> int:
    """Where the broker's log ends (bytes)."""
    return int(remoting.runtime_info(broker.broker_port)["commitLogMaxOffset"])


def wait_for_all(stack: Stack, broker: real_broker.RealRocketMQ) -> None:
    """Until the mirror has the broker's log and has built from it."""

    def has_all() -> bool:
        services = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
        ends = [row.log_end_offset for row in services if row.service == "commitlog"]
        return ends == [log_end(broker)]

    wait_until(has_all, stack.log)
    stack.wait_until_built()


def log_files(store: pathlib.Path, end_offset: int) -> dict[str, bytes]:
    """The log's files up to its end; a file may have been made ahead."""
    files = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
    return {name: data for name, data in files.items() if int(name) < end_offset}


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_a_mirror_has_the_brokers_whole_log_byte_by_byte_and_answers_all_queries(
    tmp_path: pathlib.Path, version: str
) -> None:
    broker = real_broker.RealRocketMQ(tmp_path / "theirs", tmp_path / "rocketmq", version=version, **BROKER)
    mirror = f"rocketmq://127.0.0.1:{broker.broker_port + 1}"
    try:
        broker.start()
        remoting.create_topic(broker.broker_port, TOPIC, 2)
        send(broker, "before-", 200)
        send(broker, "large-", 150, size=500)
        assert log_end(broker) > 2 * FILE_BYTES, "an empty slave of RocketMQ would get the last file only"
        with running_stack(tmp_path / "ours", "--mirror", mirror, settings=SETTINGS) as stack:
            wait_for_all(stack, broker)
            stack.kill()
        with running_stack(tmp_path / "ours", "--mirror", mirror, settings=SETTINGS) as stack:
            send(broker, "while-", 50)
            wait_for_all(stack, broker)
            broker.stop()
            broker.start()  # a clean restart of the broker in the middle
            send(broker, "after-", 50)
            wait_for_all(stack, broker)
            end = log_end(broker)
            expected = broker_calls.stored(tmp_path / "theirs", TOPIC)
            assert len(expected) == 450
            for one in expected[::7]:
                by_key = pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=one.unique_key)
                found = stack.gateway.QueryMessageByUniqueKey(by_key, timeout=WAIT_SECONDS_MAX).messages
                assert [(m.commit_log_offset, m.queue_id, m.queue_offset, m.body.decode()) for m in found] == [
                    (one.commit_log_offset, one.queue_id, one.queue_offset, one.body)
                ]
            for prefix, count in (("before-", 200), ("while-", 50), ("after-", 50), ("large-", 150)):
                for number in (0, count // 2, count - 1):
                    key = pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"{prefix}{number}")
                    (hit,) = stack.gateway.QueryMessageByKey(key, timeout=WAIT_SECONDS_MAX).messages
                    wanted = {one.commit_log_offset for one in expected if one.properties["KEYS"] == key.key}
                    assert {hit.commit_log_offset} == wanted
            stack.stop()
        assert log_files(tmp_path / "ours", end) == log_files(tmp_path / "theirs", end)
    finally:
        broker.stop()


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_a_mirror_that_asks_the_broker_has_topics_and_positions_and_can_take_over(
    tmp_path: pathlib.Path, version: str
) -> None:
    """The broker has removed its first file: the mirror begins at the second one, with the broker's own file size.

    As a SYNC_MASTER the broker waits for the mirror.
    """
    broker = real_broker.RealRocketMQ(tmp_path / "theirs", tmp_path / "rocketmq", version=version, **BROKER)
    mirror = f"rocketmq://127.0.0.1:{broker.broker_port + 1}"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    try:
        broker.start()
        remoting.create_topic(broker.broker_port, TOPIC, 3)
        remoting.create_group(broker.broker_port, "readers", ordered=False, delivery_attempts_max=5)
        send(broker, "large-", 150, size=500)
        broker.stop()
        (theirs / "commitlog" / f"{0:020}").unlink()
        broker.settings |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
        broker.start()
        with pytest.raises(remoting.RefusedError):  # there is no slave that could acknowledge it; it is stored
            send(broker, "without-", 1)
        broker_calls.update_consumer_offset(broker.broker_port, "readers", TOPIC, 0, 140)
        flags = ("--mirror", mirror, "--mirror-broker", f"127.0.0.1:{broker.broker_port}")
        with running_stack(ours, *flags, settings={"REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536"}) as stack:
            wait_for_all(stack, broker)

            def group() -> pb.GetConsumerGroupResponse:
                return stack.gateway.GetConsumerGroup(
                    pb.GetConsumerGroupRequest(consumer_group="readers"), timeout=WAIT_SECONDS_MAX
                )

            wait_until(lambda: is_found(lambda: group().queues[0].consumer_offset == 140), stack.log)
            (commitlog,) = (
                row
                for row in stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
                if row.service == "commitlog"
            )
            assert (commitlog.state, commitlog.problem, commitlog.followed_lag_bytes) == ("mirroring", "", 0)
            topics = {
                row.topic: row
                for row in stack.gateway.ListTopics(pb.ListTopicsRequest(), timeout=WAIT_SECONDS_MAX).topics
            }
            assert [row.read_queue_count for row in topics[TOPIC].settings] == [3]
            stored = {one.queue_offset: one for one in broker_calls.stored(ours, TOPIC)}
            for queue_offset, state in ((139, pb.TRACK_STATE_CONSUMED), (140, pb.TRACK_STATE_NOT_CONSUMED)):
                which = pb.TrackMessageRequest(topic=TOPIC, unique_key=stored[queue_offset].unique_key)
                tracks = stack.gateway.TrackMessage(which, timeout=WAIT_SECONDS_MAX).tracks
                assert [row.state for row in tracks if row.consumer_group == "readers"] == [state]
            send(broker, "with-", 3)  # our reports acknowledge them
            wait_for_all(stack, broker)
            with pytest.raises(grpc.RpcError, match="this store mirrors rocketmq:"):
                append(stack, b"refused")
            assert stack.stop() == 0
        end = log_end(broker)
        assert sorted(log_files(ours, end)) == sorted(log_files(theirs, end)) != []
        assert log_files(ours, end) == log_files(theirs, end)
        broker.stop()
        # The broker is gone: its mirror takes over, and a consumer goes on where it was.
        with hosted_stack(ours) as stack:
            assert append(stack, b"goes on").queue_offset in (0, 154)
            assert (
                stack.gateway.GetConsumerGroup(
                    pb.GetConsumerGroupRequest(consumer_group="readers"), timeout=WAIT_SECONDS_MAX
                )
                .queues[0]
                .consumer_offset
                == 140
            )
    finally:
        broker.stop()


def is_found(look: Callable[[], bool]) -> bool:
    """What `look` returns; False while there is no such thing yet."""
    try:
        return look()
    except (grpc.RpcError, IndexError):
        return False


def append(stack: Stack | HostedStack, body: bytes) -> message_pb2.AppendResult:
    """Append a message."""
    request = pb.AppendMessagesRequest(messages=[new_message(TOPIC, body)])
    return stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results[0]


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_a_real_slave_follows_our_leader_and_serves_what_we_stored_once_it_is_promoted(
    tmp_path: pathlib.Path, version: str
) -> None:
    ha_port = free_port()
    slave = real_broker.RealRocketMQ(
        tmp_path / "theirs",
        tmp_path / "rocketmq",
        version=version,
        **BROKER,
        brokerRole="SLAVE",
        brokerId=1,
    )
    settings = {
        **SETTINGS,
        "REPUT_COMMITLOG_ROCKETMQ_HA_ADDRESS": f"127.0.0.1:{ha_port}",
        "REPUT_COMMITLOG_ROCKETMQ_SLAVES": f"127.0.0.1:{slave.broker_port}",
    }
    try:
        with hosted_stack(tmp_path / "ours", settings=settings) as stack:
            receipts = [append(stack, b"%d " % number * 500) for number in range(150)]
            slave.start()

            def has_all() -> bool:
                services = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
                ends = [row.log_end_offset for row in services if row.service == "commitlog"]
                return log_end(slave) == ends[0] > 2 * FILE_BYTES

            wait_until(has_all, lambda: f"the slave's log ends at {log_end(slave)}")
            receipts += [append(stack, b"later %d" % number) for number in range(20)]
            wait_until(has_all, lambda: f"the slave's log ends at {log_end(slave)}")
            end = log_end(slave)
            stack.stop()
        slave.stop()
        assert log_files(tmp_path / "theirs", end) == log_files(tmp_path / "ours", end)
        shutil.copytree(tmp_path / "ours" / "config", tmp_path / "theirs" / "config", dirs_exist_ok=True)
        for name in ("brokerRole", "brokerId"):
            slave.settings.pop(name)
        slave.start()  # as a master, on its files
        for receipt in (receipts[0], receipts[75], receipts[-1]):
            found = slave.mqadmin("queryMsgByUniqueKey", "-t", TOPIC, "-i", receipt.unique_key)
            assert f"Queue Offset:        {receipt.queue_offset}" in found, found
        sent = slave.send(TOPIC, "goes-on-", 1)
        assert len(sent) == 1
    finally:
        slave.stop()
