"""Row 22: appends that are answered when two disks have them."""

import shutil
from collections.abc import Mapping

from benchmarks.figures import OURS, Metric, times_theirs
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context, Row, SkippedError
from benchmarks.rows.unary_append import BODY, BODY_BYTES
from benchmarks.sides import ghz
from benchmarks.sizes import Sizes
from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
from services.calling.commitlog import CommitLogClient
from services.rpcs.commitlog import GET_STATUS
from tests.support.cluster import Cluster, running_cluster

BATCHED, UNARY, P99 = "in batches of 32", "one message a call, 64 callers", "one message a call: p99"
BATCH_COUNT, JAVA_THREADS, CALLERS = 32, 8, 64
LOG_FILE_BYTES = 1 << 30  # the default of both sides
# The product's own defaults, where the cluster of the tests has small ones.
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(LOG_FILE_BYTES),
    "REPUT_INDEX_HASH_SLOT_COUNT": "5000000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "20000000",
    "REPUT_LOG_LEVEL": "warning",
}
# Without inSyncReplicas a SYNC_MASTER of 5.x answers before its slave has the message.
MASTER = {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}
BOTH_DISKS = {"inSyncReplicas": 2, "minInSyncReplicas": 2, "totalReplicas": 2}


class ReplicatedAppend(Row):
    """Row 22."""

    number = 22
    title = "Replicated append, 1 KiB, a leader and one replica"
    cause = (
        "Both replicas flush before the answer and both build queues and index on the same two cores; RocketMQ's "
        "slave answers before its flush (ADR 0074, 0090)."
    )
    what = (
        "FLUSH_MODE_REPLICATED through the gateway: `reput cluster --replicas 2` with etcd, all services of both replicas; "
        "answered when both disks have the message. Theirs: SYNC_MASTER and one slave, both SYNC_FLUSH, inSyncReplicas = 2, "
        "RocketMQ's Java producer straight to the broker; its slave answers for what it has received, before its own flush. "
        "A batch is the list of a call; in ours, lists that wait while eight requests are under way share the next one."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(BATCHED, "messages/s", target=times_theirs(1.0)),
            Metric(UNARY, "calls/s", target=times_theirs(1.0)),
            Metric(P99, "ms", lower_is_better=True, sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round; each figure on empty stores."""
        return self._ours(context) if side == OURS else self._theirs(context)

    def _ours(self, context: Context) -> Mapping[str, float]:
        if shutil.which("etcd") is None:
            raise SkippedError("etcd is not installed (Debian: etcd-server)")
        sizes = self.sizes
        with context.directory() as path, running_cluster(path / "cluster", 2, SETTINGS) as cluster:
            leader = cluster.wait_until_whole()
            load = Load(
                cluster.status()["gateway"], body_bytes=BODY_BYTES, batch_count=BATCH_COUNT, replicated=True,
                warm_seconds=sizes.warm_seconds, seconds=sizes.measure_seconds,
            )  # fmt: skip
            outcome = load.run()
            _check_both_have(cluster, leader, outcome["count"] * BODY_BYTES)
        with context.directory() as path, running_cluster(path / "cluster", 2, SETTINGS) as cluster:
            leader = cluster.wait_until_whole()
            gateway = cluster.status()["gateway"]
            if not context.ghz:
                load = Load(
                    gateway, "unary", body_bytes=BODY_BYTES, batch_count=1, callers=CALLERS, replicated=True,
                    warm_seconds=sizes.warm_seconds, seconds=sizes.measure_seconds,
                )  # fmt: skip
                return {BATCHED: outcome["rate"], UNARY: load.run()["rate"]}
            message = {"topic": TOPIC, "body": BODY, "keys": ["key-1"], "tags": "TagA"}
            calls = ghz.run(
                context.ghz, gateway, "reput.gateway.v1.GatewayService/AppendMessages",
                {"messages": [message], "flush": "FLUSH_MODE_REPLICATED"},
                callers=CALLERS, warm_seconds=sizes.warm_seconds, seconds=sizes.measure_seconds,
            )  # fmt: skip
            _check_both_have(cluster, leader, calls.ok_count * BODY_BYTES)
        return {BATCHED: outcome["rate"], UNARY: calls.rate, P99: calls.p99_millis}

    def _theirs(self, context: Context) -> Mapping[str, float]:
        return {
            BATCHED: self._java(context, JAVA_THREADS, BATCH_COUNT),
            UNARY: self._java(context, CALLERS, 1),
        }

    def _java(self, context: Context, threads: int, batch_count: int) -> float:
        sizes = self.sizes
        with context.theirs(**MASTER, **BOTH_DISKS) as rocketmq:
            rocketmq.start_slave(flushDiskType="SYNC_FLUSH")
            rocketmq.create_topic(TOPIC)
            arguments = (threads, BODY_BYTES, batch_count, sizes.warm_seconds, sizes.measure_seconds)
            rate: float = rocketmq.driver("AppendLoad", rocketmq.namesrv, TOPIC, *arguments)["rate"]
        return rate


def _check_both_have(cluster: Cluster, leader: str, stored_bytes: float) -> None:
    """RuntimeError unless the whole load is confirmed, and both replicas were in sync at its end."""
    client = CommitLogClient(cluster.replicas()[leader]["address"])
    try:
        status = client.call(GET_STATUS, GetStatusRequest(), 10)
    finally:
        client.close()
    if len(status.in_sync) < len(cluster.replicas()) or status.confirm_offset < stored_bytes:
        raise RuntimeError(f"in sync are {list(status.in_sync)}, confirmed are {status.confirm_offset} bytes")
