"""Rows 28 to 30: RocketMQ's own clients consume and query over its remoting protocol."""

import contextlib
from collections.abc import Mapping

from benchmarks import stores
from benchmarks.figures import OURS, Metric, part_of_theirs, times_theirs
from benchmarks.load import TOPIC
from benchmarks.row import QUIET, Context, Row
from benchmarks.rows.consuming import LATENCY_RATE, fill_seconds
from benchmarks.rows.queries import KINDS, Queries, latencies
from benchmarks.sides import remoting_side, rocketmq_side
from benchmarks.sides.our_side import running_stack
from benchmarks.sizes import Sizes

BACKLOG, P50, P99 = "backlog", "live, p50", "live, p99"
LIVE_THREADS = 16
PULL_BATCH = 32


class RemotingPush(Row):
    """Row 28."""

    number = 28
    title = "DefaultMQPushConsumer over remoting, 1 KiB"
    cause = (
        "A message is shown once it is flushed, by a second process; a backlog costs Python's work for each "
        "message (ADR 0151)."
    )
    what = (
        "The unmodified client of RocketMQ with its defaults on both sides; its listener returns at "
        f"once. The backlog counts from its first message. Live: one process sends {LATENCY_RATE:,} messages/s with "
        f"{LIVE_THREADS} threads and consumes; a message counts from when it was due, until its listener is called."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(BACKLOG, "messages/s", target=times_theirs(1.0)),
            Metric(P99, "ms", lower_is_better=True, target=part_of_theirs(1.0)),
            Metric(P50, "ms", lower_is_better=True),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        sizes = self.sizes
        with remoting_side.serving(side, context) as served:
            live = served.drive(
                "PushLoad", "live", served.namesrv, TOPIC, LATENCY_RATE, LIVE_THREADS, remoting_side.BODY_BYTES,
                sizes.warm_seconds, sizes.measure_seconds,
            )  # fmt: skip
            count = served.fill(fill_seconds(sizes))
            backlog = served.drive("PushLoad", "backlog", served.namesrv, TOPIC, count)
        return {BACKLOG: backlog["rate"], P50: live["p50_millis"], P99: live["p99_millis"]}


class RemotingLitePull(Row):
    """Row 29."""

    number = 29
    title = "DefaultLitePullConsumer over remoting, 1 KiB"
    cause = "Each pull of 32 messages passes two processes (ADR 0150)."
    what = f"The same version reads what was sent before, a thread for each queue, {PULL_BATCH} messages a pull."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (Metric(BACKLOG, "messages/s", target=times_theirs(1.0)),)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with remoting_side.serving(side, context) as served:
            count = served.fill(fill_seconds(self.sizes))
            return {
                BACKLOG: served.drive("LitePull", served.namesrv, TOPIC, count, PULL_BATCH, remoting_side.QUEUE_COUNT)[
                    "rate"
                ]
            }


class RemotingQueries(Queries):
    """Row 30."""

    number = 30
    title = "Queries over remoting with a warm client"
    what = (
        "As row 6, with the admin client and the pull consumer of RocketMQ on both sides. The targets "
        "are for queryMsgByKey and viewMessage."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = tuple(
            Metric(
                f"{name}, {part}", "ms", lower_is_better=True,
                target=part_of_theirs(1.2) if part == "p50" and kind in ("key", "id") else None,
            )
            for kind, name in KINDS.items()
            for part in ("p50", "p99")
        )  # fmt: skip

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        assert self._kept is not None
        kept, sizes = self._kept, self.sizes
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(context.directory())
            root = stores.copy_of(kept, path / "store")
            if side == OURS:
                # Ids of the store's messages name another address; the queries are given those of the door.
                own = dict(stores.settings(sizes, kept.log_file_bytes))
                del own["REPUT_STORE_HOST"]
                ours = stack.enter_context(running_stack(root, QUIET | own, single_process=sizes.single_process))
                ours.wait_until_built()
                port = int(ours.addresses["remoting"].rpartition(":")[2])
                served = remoting_side.Served(ours.addresses["nameserver"], port, path / "work", lambda: None)
            else:
                settings = stores.rocketmq_settings(sizes, kept.log_file_bytes)
                theirs = stack.enter_context(rocketmq_side.running_rocketmq(root, path / "work", **settings))
                theirs.wait_until_built()
                served = remoting_side.Served(theirs.namesrv, theirs.broker_port, path / "driver", lambda: None)
            where = (served.namesrv, served.port, rocketmq_side.CLUSTER, rocketmq_side.BROKER)
            answer = served.drive("QueryLoad", *where, stores.TOPIC, kept.samples, sizes.query_count)
        return latencies(answer, "the door" if side == OURS else "RocketMQ")
