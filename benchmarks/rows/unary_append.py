"""Rows 3 and 4: one message a call, many callers."""

import base64
import os
from collections.abc import Mapping
from typing import ClassVar

from benchmarks import disk
from benchmarks.figures import ECHO, OURS, THEIRS, Metric, times_theirs
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context, Row, SkippedError
from benchmarks.sides import ghz, remoting
from benchmarks.sides.echo import running_echo
from benchmarks.sides.rocketmq_side import RocketMQ
from benchmarks.sizes import Sizes

BODY_BYTES = 1024
BODY = base64.b64encode(os.urandom(BODY_BYTES)).decode()
RATE, P99, JAVA_RATE, DISK = "over gRPC", "p99 over gRPC", "against the Java producer", "fdatasync of the disk, p99"
MESSAGING_PROTO = ghz.ROOT / "benchmarks" / "rocketmq_messaging.proto"
ECHO_PROTO = ghz.ROOT / "benchmarks" / "echo.proto"
CLIENT_METADATA = {  # the proxy requires it
    "x-mq-client-id": "benchmark",
    "x-mq-language": "OTHER",
    "x-mq-client-version": "5.0.0",
    "x-mq-protocol": "v2",
}


class UnaryAppend(Row):
    """Unary appends from concurrent callers."""

    callers: ClassVar[int]
    sync: ClassVar[bool]

    def _ghz(
        self, context: Context, address: str, call: str, data: Mapping[str, object], **options: object
    ) -> ghz.Outcome:
        sizes = self.sizes
        return ghz.run(
            context.ghz, address, call, data, callers=self.callers, warm_seconds=sizes.warm_seconds,
            seconds=sizes.measure_seconds, **options,  # type: ignore[arg-type]
        )  # fmt: skip

    def _ours(self, context: Context) -> ghz.Outcome:
        message = {"topic": TOPIC, "body": BODY, "keys": ["key-1"], "tags": "TagA"}
        data = {"messages": [message], "flush": "FLUSH_MODE_SYNC" if self.sync else "FLUSH_MODE_ASYNC"}
        with context.ours() as stack:
            address = stack.addresses["gateway"]
            if context.ghz:
                return self._ghz(context, address, "reput.gateway.v1.GatewayService/AppendMessages", data)
            load = Load(address, "unary", "gateway", BODY_BYTES, 1, self.callers, self.sync)
            return ghz.Outcome(load.run()["rate"], 0.0, 0)

    def _theirs(self, context: Context, rocketmq: RocketMQ) -> ghz.Outcome:
        if not context.ghz:
            raise SkippedError(context.ghz_missing)
        system_properties = {
            "tag": "TagA",
            "keys": ["key-1"],
            "message_id": "01" * 17,
            "message_type": 1,
            "body_encoding": 1,
        }
        data = {"messages": [{"topic": {"name": TOPIC}, "system_properties": system_properties, "body": BODY}]}
        address = f"127.0.0.1:{rocketmq.proxy_port}"
        outcome = self._ghz(
            context, address, "apache.rocketmq.v2.MessagingService/SendMessage", data, proto=MESSAGING_PROTO,
            metadata=CLIENT_METADATA,
        )  # fmt: skip
        # The proxy answers a refusal with OK and a code inside: the size of the log shows whether the messages are stored.
        stored_bytes = int(remoting.runtime_info(rocketmq.broker_port)["commitLogMaxOffset"])
        if stored_bytes < outcome.ok_count * BODY_BYTES:
            raise RuntimeError(f"{outcome.ok_count} calls were answered, and the log has {stored_bytes} bytes")
        return outcome


class Unary(UnaryAppend):
    """Row 3."""

    number = 3
    title = "Unary append, 1 KiB, 32 callers"
    what = "ghz with the same flags against our gateway, RocketMQ's gRPC proxy and the bare echo; flush asynchronous."
    callers, sync = 32, False

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        every = (OURS, THEIRS, ECHO)
        self.metrics = (
            Metric(RATE, "calls/s", target=times_theirs(1.2, stretch=2), sides=every),
            Metric(P99, "ms", lower_is_better=True, sides=every),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        if side == OURS:
            outcome = self._ours(context)
        elif side == THEIRS:
            with context.theirs(proxy=bool(context.ghz)) as rocketmq:
                rocketmq.create_topic(TOPIC)
                outcome = self._theirs(context, rocketmq)
        else:
            if not context.ghz:
                raise SkippedError(context.ghz_missing)
            with running_echo() as address:
                outcome = self._ghz(context, address, "echo.Echo/Unary", {"body": BODY}, proto=ECHO_PROTO)
        return {RATE: outcome.rate} | ({P99: outcome.p99_millis} if outcome.p99_millis else {})


class SyncUnary(UnaryAppend):
    """Row 4."""

    number = 4
    title = "Unary append, flushed before the answer, 64 callers"
    cause = (
        "Each call passes two processes and gRPC's core twice before the flush; the Java producer's frames pass "
        "none of it (ADR 0011, 0096)."
    )
    what = (
        "FLUSH_MODE_SYNC against SYNC_FLUSH. Over gRPC: ghz on both sides, theirs through its proxy. Against the Java "
        "producer: ours the same, theirs 64 threads with RocketMQ's own client, without a proxy."
    )
    callers, sync = 64, True

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(RATE, "calls/s", target=times_theirs(1.0)),
            Metric(JAVA_RATE, "calls/s", target=times_theirs(0.8, stretch=1)),
            Metric(P99, "ms", lower_is_better=True),
            Metric(DISK, "ms", lower_is_better=True, sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        if side == OURS:
            flush = disk.fdatasync_p99_millis(context.scratch)
            outcome = self._ours(context)
            values = {RATE: outcome.rate, JAVA_RATE: outcome.rate, DISK: flush}
            return values | ({P99: outcome.p99_millis} if outcome.p99_millis else {})
        sizes = self.sizes
        with context.theirs(proxy=bool(context.ghz), flushDiskType="SYNC_FLUSH") as rocketmq:
            rocketmq.create_topic(TOPIC)
            java = rocketmq.driver(
                "AppendLoad", rocketmq.namesrv, TOPIC, self.callers, BODY_BYTES, 1, sizes.warm_seconds,
                sizes.measure_seconds,
            )  # fmt: skip
            if not context.ghz:
                return {JAVA_RATE: java["rate"]}
            outcome = self._theirs(context, rocketmq)
        return {RATE: outcome.rate, P99: outcome.p99_millis, JAVA_RATE: java["rate"]}
