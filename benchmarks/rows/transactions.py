"""Row 20: the official Java client sends transactions."""

import pathlib
from collections.abc import Mapping

from benchmarks import processes
from benchmarks.figures import Metric, times_theirs
from benchmarks.load import TOPIC
from benchmarks.log_records import read_records
from benchmarks.row import Context, Row
from benchmarks.sides import official_side
from benchmarks.sizes import Sizes

RATE = "committed"
THREAD_COUNT = 16
STORED_SECONDS_MAX = 60.0


class Transactions(Row):
    """Row 20."""

    number = 20
    title = "Transactions, 1 KiB"
    cause = "Our gateway answers a commit when the message is in the log, RocketMQ's proxy before (ADR 0057)."
    what = (
        f"RocketMQ's official Java client with {THREAD_COUNT} threads: begin, send the half message, commit, one after the "
        "other, through our gateway and through RocketMQ's proxy. The proxy does not wait for the broker when it answers a "
        "commit; our gateway answers when the message is in the log. A round counts only if the log then has each message."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (Metric(RATE, "transactions/s", target=times_theirs(1.2)),)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with official_side.serving(side, context, "TRANSACTION") as served:
            said = official_side.send(served.endpoint, "transaction", context, THREAD_COUNT)
            what = f"the {said['count']:,} messages of the transactions"
            processes.wait_for(lambda: committed_count(served.root) >= said["count"], what, STORED_SECONDS_MAX, 1.0)
            return {RATE: said["rate"]}


def committed_count(root: pathlib.Path) -> int:
    """Messages of transactions that count, by a store's log."""
    return sum(record.topic == TOPIC for record in read_records(root))
