"""Row 9: from the start of a killed store to its first answer."""

import time
from collections.abc import Mapping

from benchmarks import processes, stores
from benchmarks.figures import OURS, THEIRS, Medians, Metric, RowResult, Target, at_most, faster_than_theirs, medians
from benchmarks.load import TOPIC, Load
from benchmarks.row import QUIET, Context, Row
from benchmarks.sides import rocketmq_side
from benchmarks.sides.our_side import BUILT_SECONDS_MAX, OurStack, running_stack
from benchmarks.sizes import GIB, MIB, Sizes

BEHIND, FLAT = "everything behind", "checkpoints fresh: largest log / smallest"
FRESH_SECONDS_MAX = 2.0
GONE_SECONDS_MAX = 30.0


def fresh_name(log_bytes: int) -> str:
    """The name of the metric for a log's size."""
    size = f"{log_bytes / GIB:g} GiB" if log_bytes >= GIB else f"{log_bytes / MIB:g} MiB"
    return f"checkpoints fresh, log of {size}"


def _fresh_bound(values: Medians) -> float:
    return min(FRESH_SECONDS_MAX, values[THEIRS] / 2)


class Restart(Row):
    """Row 9."""

    number = 9
    title = "Restart to serving after kill -9"
    what = (
        "Behind: the root of row 8, ours until the queries see everything, theirs until the broker, which builds first, "
        "is registered (its name server is running). Fresh: appended to, checkpoints written, appended to, killed with "
        "SIGKILL, started; ours all six services, theirs the broker."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        largest = max(sizes.restart_log_bytes)
        limit = at_most(FRESH_SECONDS_MAX, "s")
        both = Target(f">= 2 times as fast as RocketMQ, and <= {FRESH_SECONDS_MAX:g} s", _fresh_bound)
        self.metrics = (
            Metric(BEHIND, "s", lower_is_better=True, target=faster_than_theirs(2)),
            *(
                Metric(fresh_name(size), "s", lower_is_better=True, target=limit, sides=(OURS,))
                for size in sizes.restart_log_bytes
                if size != largest
            ),
            Metric(fresh_name(largest), "s", lower_is_better=True, target=both),
            Metric(FLAT, "x", lower_is_better=True, target=at_most(1.2, "x"), sides=(OURS,)),
        )
        self._behind: stores.KeptStore | None = None
        self._fresh: dict[int, stores.KeptStore] = {}

    def prepare(self, context: Context) -> None:
        """Makes the logs."""
        self._behind = stores.log_store(context.stores, self.sizes, self.sizes.log_bytes, context.say)
        for size in self.sizes.restart_log_bytes:
            self._fresh[size] = stores.log_store(context.stores, self.sizes, size, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        assert self._behind is not None
        if side == THEIRS:
            largest = max(self._fresh)
            return {
                BEHIND: self._theirs_behind(context, self._behind),
                fresh_name(largest): self._theirs_fresh(context, self._fresh[largest]),
            }
        values = {fresh_name(size): self._ours_fresh(context, kept) for size, kept in self._fresh.items()}
        flat = values[fresh_name(max(self._fresh))] / values[fresh_name(min(self._fresh))]
        return {BEHIND: self._ours_behind(context, self._behind), **values, FLAT: flat}

    def finish(self, context: Context, result: RowResult) -> None:
        """Adds the curve over the log's size."""
        result.curves["restart_fresh"] = [
            (size / GIB, medians(result.rounds[fresh_name(size)])[OURS])
            for size in sorted(self._fresh)
            if OURS in result.rounds.get(fresh_name(size), {})
        ]

    def _settings(self, kept: stores.KeptStore) -> dict[str, str]:
        return QUIET | stores.settings(self.sizes, kept.log_file_bytes)

    def _ours_behind(self, context: Context, kept: stores.KeptStore) -> float:
        with context.directory() as path:
            root = stores.log_only_root(kept, path / "store", is_ours=True)
            stores.warm(root)
            start = time.perf_counter()
            with running_stack(root, self._settings(kept), single_process=self.sizes.single_process) as stack:
                stack.wait_until_built(BUILT_SECONDS_MAX)
                return time.perf_counter() - start

    def _ours_fresh(self, context: Context, kept: stores.KeptStore) -> float:
        with context.directory() as path:
            root = stores.copy_of(kept, path / "store")
            with running_stack(root, self._settings(kept), single_process=self.sizes.single_process) as stack:
                self._append(stack)
                time.sleep(self.sizes.checkpoint_seconds)
                self._append(stack)
                pids = stack.pids()
                stack.kill()
                processes.wait_for(lambda: not processes.living(pids), "the killed services", GONE_SECONDS_MAX)
            start = time.perf_counter()
            with running_stack(root, self._settings(kept), single_process=self.sizes.single_process):
                return time.perf_counter() - start

    @staticmethod
    def _append(stack: OurStack) -> None:
        Load(stack.addresses["gateway"], "unary", batch_count=32, callers=1, warm_seconds=0, seconds=0.5).run()
        stack.wait_until_built(BUILT_SECONDS_MAX)

    def _rocketmq(self, context: Context, kept: stores.KeptStore, root_and_work: tuple) -> rocketmq_side.RocketMQ:
        settings = stores.rocketmq_settings(self.sizes, kept.log_file_bytes)
        return rocketmq_side.RocketMQ(*root_and_work, **settings)

    def _theirs_behind(self, context: Context, kept: stores.KeptStore) -> float:
        with context.directory() as path:
            root = stores.log_only_root(kept, path / "store", is_ours=False)
            stores.warm(root)
            rocketmq = self._rocketmq(context, kept, (root, path / "work"))
            try:
                rocketmq.start_name_server()
                start = time.perf_counter()
                rocketmq.start_broker()
                rocketmq.wait_until_built(BUILT_SECONDS_MAX)
                return time.perf_counter() - start
            finally:
                rocketmq.stop()

    def _theirs_fresh(self, context: Context, kept: stores.KeptStore) -> float:
        with context.directory() as path:
            root = stores.copy_of(kept, path / "store")
            rocketmq = self._rocketmq(context, kept, (root, path / "work"))
            append = ("AppendLoad", rocketmq.namesrv, TOPIC, 1, 1024, 32, 0.0, 0.5)
            try:
                rocketmq.start()
                rocketmq.driver(*append)
                time.sleep(self.sizes.checkpoint_seconds)
                rocketmq.driver(*append)
                rocketmq.kill_broker()
                start = time.perf_counter()
                rocketmq.start_broker()
                return time.perf_counter() - start
            finally:
                rocketmq.stop()
