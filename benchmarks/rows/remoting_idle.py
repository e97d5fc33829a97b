"""Row 31: connections of remoting clients that do nothing."""

import contextlib
import time
from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_most
from benchmarks.row import Context, Row
from benchmarks.sides import remoting
from benchmarks.sizes import Sizes
from store.files.open_files import raise_open_file_limit

MEMORY, THREADS, CPU, ANSWER = "memory more", "threads more", "of a core", "a request beside them, p50"
REQUEST_COUNT = 50


class RemotingIdle(Row):
    """Row 31."""

    number = 31
    title = "10,000 idle connections at the remoting door"
    what = (
        "Clients connect, each says in a heartbeat that it is a producer, and then they do nothing: RSS, threads and CPU of "
        "the gateway while they stay. The request beside them asks for the broker's configuration. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self._count = max(sizes.connection_counts)
        self.metrics = (
            Metric(MEMORY, "MiB", lower_is_better=True, target=at_most(100, "MiB"), sides=(OURS,)),
            # Heartbeats are taken by the door's own threads, which are there for any number of clients.
            Metric(THREADS, "threads", lower_is_better=True, target=at_most(32, "threads"), sides=(OURS,)),
            Metric(CPU, "%", lower_is_better=True, sides=(OURS,)),
            Metric(ANSWER, "ms", lower_is_better=True, sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        raise_open_file_limit()
        with context.ours(in_processes=True) as stack, contextlib.ExitStack() as opened:
            gateway = stack.children()["gateway"]
            port = int(stack.addresses["remoting"].rpartition(":")[2])
            time.sleep(self.sizes.settle_seconds)
            memory, threads = processes.memory_mib([gateway]), processes.thread_count(gateway)
            for number in range(self._count):
                opened.enter_context(remoting.connected_client(port, f"idle-{number}", f"idle-group-{number % 100}"))
            time.sleep(self.sizes.settle_seconds)
            begin, used = time.monotonic(), processes.cpu_seconds([gateway])
            time.sleep(self.sizes.idle_seconds)
            used = (processes.cpu_seconds([gateway]) - used) / (time.monotonic() - begin)
            return {
                MEMORY: processes.memory_mib([gateway]) - memory,
                THREADS: processes.thread_count(gateway) - threads,
                CPU: 100 * used,
                ANSWER: remoting.request_millis(port, REQUEST_COUNT),
            }
