"""Row 18: long polls that wait."""

import subprocess
import sys
import time
from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_most
from benchmarks.load import TOPIC, environment
from benchmarks.row import Context, Row
from benchmarks.sizes import TINY, Sizes
from tests.clients.servers import ReputServer

POLL_COUNT, CONNECTION_COUNT = 10_000, 50
POLL_COUNT_TINY = 500
MEMORY, CPU, THREADS = "memory more", "of a core", "threads more"


class IdlePolls(Row):
    """Row 18."""

    number = 18
    title = f"{POLL_COUNT:,} idle long polls at one gateway"
    cause = "A call that waits takes 15 KiB in gRPC's C core alone, 147 MiB for all, and some KiB in Python (ADR 0176)."
    what = (
        f"{CONNECTION_COUNT} connections poll a topic without messages for 100 groups; RSS, threads and CPU of the gateway "
        "while they wait. Polls last 20 s and do not end while they are measured. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(MEMORY, "MiB", lower_is_better=True, target=at_most(120, "MiB"), sides=(OURS,)),
            Metric(CPU, "%", lower_is_better=True, target=at_most(5, "%"), sides=(OURS,)),
            Metric(THREADS, "threads", lower_is_better=True, target=at_most(64, "threads"), sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        poll_count = POLL_COUNT_TINY if self.sizes.name == TINY.name else POLL_COUNT
        with context.ours() as stack:
            server = ReputServer(stack)
            server.create_topic(TOPIC, 8, "NORMAL")
            gateway = stack.children()["gateway"]
            time.sleep(self.sizes.settle_seconds)
            before = processes.memory_mib([gateway])
            threads = processes.thread_count(gateway)
            command = [sys.executable, "-m", "benchmarks.idle_polls", server.endpoint, TOPIC]
            command += [str(poll_count), str(CONNECTION_COUNT)]
            with processes.ended(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
            ) as holder:
                assert holder.stdout is not None
                if holder.stdout.readline() != b"sent\n":
                    raise RuntimeError("the polls were not sent")
                time.sleep(self.sizes.settle_seconds)
                begin, begin_seconds = time.monotonic(), processes.cpu_seconds([gateway])
                time.sleep(self.sizes.idle_seconds)
                used = (processes.cpu_seconds([gateway]) - begin_seconds) / (time.monotonic() - begin)
                return {
                    MEMORY: processes.memory_mib([gateway]) - before,
                    CPU: 100 * used,
                    THREADS: processes.thread_count(gateway) - threads,
                }
