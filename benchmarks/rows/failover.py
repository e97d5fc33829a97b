"""Row 24: how long nothing is acknowledged after the leader was killed."""

import shutil
import signal
import statistics
import time
from collections.abc import Callable, Mapping

from benchmarks.figures import OURS, THEIRS, Metric, RowResult, at_most
from benchmarks.load import TOPIC
from benchmarks.row import Context, Row, SkippedError
from benchmarks.sides import remoting
from benchmarks.sides.acknowledged import Acknowledged, sender_to_any
from benchmarks.sides.controller_mode import IN_SYNC, running_controller_cluster
from benchmarks.sizes import Sizes
from tests.support.cluster import running_cluster

P50, MAX = "p50", "max"
SECONDS_MAX = 10.0
PRODUCERS = 2
SETTLED_COUNT, AFTER_COUNT = 50, 50


class Failover(Row):
    """Row 24."""

    number = 24
    title = "Failover after kill -9 of the leader"
    what = (
        "Three replicas, one coordinator, loopback, timeouts as they come, acknowledged once on two replicas at least; "
        "the longest time between two acknowledgements of two producers, until all replicas are in sync again. Ours: "
        "`reput cluster`, through the gateway. Theirs: controller mode (allAckInSyncStateSet, minInSyncReplicas=2), controller "
        "in the name server, and producers that try each broker in turn; a Java producer also waits for its route."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        limit = at_most(SECONDS_MAX, "s")
        self.metrics = (
            Metric(P50, "s", lower_is_better=True, target=limit),
            Metric(MAX, "s", lower_is_better=True, target=limit),
        )
        self._count = {OURS: 0, THEIRS: 0}

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        seconds = self._ours(context) if side == OURS else self._theirs(context)
        self._count[side] += len(seconds)
        return {P50: statistics.median(seconds), MAX: max(seconds)}

    def finish(self, context: Context, result: RowResult) -> None:
        """Says how many there were."""
        counts = ", ".join(f"{count} ({side})" for side, count in self._count.items() if count)
        result.notes.append(f"Failovers in all rounds: {counts}.")

    def _ours(self, context: Context) -> list[float]:
        from reput_client import AppendClient, FlushMode, NewMessage, ReputClientError

        if shutil.which("etcd") is None:
            raise SkippedError("needs etcd (Debian: etcd-server)")
        with context.directory() as path, running_cluster(path / "cluster") as cluster:
            clients = [AppendClient(cluster.status()["gateway"]) for _ in range(PRODUCERS)]

            def sender(client: AppendClient) -> Callable[[str], None]:
                def send(name: str) -> None:
                    message = NewMessage(TOPIC, name.encode(), unique_key=name, keys=[name])
                    client.append([message], flush_mode=FlushMode.REPLICATED, deduplicate=True)

                return send

            try:
                return self._kill_leaders(
                    Acknowledged([sender(client) for client in clients], (ReputClientError,)),
                    cluster.wait_until_whole,
                    lambda: cluster.kill(cluster.wait_for_leader()),
                )
            finally:
                for client in clients:
                    client.close()

    def _theirs(self, context: Context) -> list[float]:
        with context.directory() as path, running_controller_cluster(path, **IN_SYNC) as cluster:
            remoting.create_topic(cluster.wait_until_whole().broker_port, TOPIC, 1)

            def whole() -> None:
                for replica in cluster.replicas:
                    if not replica.is_running:
                        replica.start_broker()
                cluster.wait_until_whole()

            senders = [sender_to_any(cluster.ports) for _ in range(PRODUCERS)]
            return self._kill_leaders(
                Acknowledged(senders, (OSError, remoting.RefusedError)),
                whole,
                lambda: cluster.wait_until_whole().send_signal(signal.SIGKILL),
            )

    def _kill_leaders(
        self, producers: Acknowledged, whole: Callable[[], object], kill: Callable[[], object]
    ) -> list[float]:
        seconds = []
        with producers:
            for _ in range(self.sizes.failover_count):
                producers.wait_for(SETTLED_COUNT)
                begun = time.monotonic()
                kill()
                producers.wait_for(AFTER_COUNT)
                whole()
                seconds.append(producers.longest_silence_seconds(begun))
        return seconds
