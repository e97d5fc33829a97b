"""Which process runs which test files, and in which order: `-p tests.support.scheduling` beside pytest-xdist's `-n`.

As with `--dist loadfile` a file stays in one process, so that what its tests share is made once. Besides:

    shared fixtures  all files that ask for one of `SHARED` in one process, which begins with them: a Spark session is a Java
                     process, and slow until it is warm; images take minutes to build; a control plane is five programs.
                     It ends with the last of these files: it would take memory and processor time until all tests are done
    long files       before short ones, the longest first, so that at the end no process is busy for minutes while others have
                     nothing to do
    waiting files    those of `WAITS` beside others from the beginning, in a third of the processes: they use a quarter of a
                     processor, and others need what they leave

A process is given the next file when it begins the last test of its file, and no earlier: a test may take minutes, and what
is given to a process cannot go to another.

What is long is recorded in `SECONDS`, or guessed from what stands in a file: a wrong guess costs time, nothing else.
"""

import functools
import re
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Fixtures of a session that are made once, so the files that ask for them run in one process; by name among the arguments of a
# test or of another fixture.
SHARED = ("spark", "serve_image", "control_plane")
ASKS_FOR = {name: re.compile(rf"^(?:async )?def \w+\([^)]*\b{name}\b", re.MULTILINE) for name in SHARED}
# Folders whose tests mostly wait: for services that start again, for disks, for clocks.
WAITS = ("tests/torture/",)
# Services, the command, other programs: their tests wait, and the processors are free for others meanwhile.
STARTS_PROCESSES = re.compile(r"\b(?:running_stack|Stack|Service|Lives|begun|Popen|subprocess|secured)\b")
# Seconds of the longest files of `make ci` and `make torture` among others, from `--durations=0`; those that are missing take
# less than all of the same run here.
SECONDS = {
    "tests/console/browser/test_browser.py": 830,
    "tests/clients/test_documented_programs.py": 700,
    "tests/benchmarks/test_smoke.py": 640,
    "tests/rocketmq/test_mirrors_under_load.py": 515,
    "tests/pipeline/rocketmq/test_kills.py": 500,
    "tests/torture/test_block_log.py": 470,
    "tests/e2e/test_fairness.py": 450,
    "tests/rocketmq/test_mirror.py": 405,
    "tests/torture/test_kill_at_every_call.py": 350,
    "tests/deploy/test_containers.py": 330,
    "tests/pipeline/rebuild/test_continuous_kills.py": 320,
    "tests/rocketmq/test_moving.py": 310,
    "tests/rocketmq/test_consumer_handover.py": 300,
    "tests/rocketmq/test_waiting_both_ways.py": 300,
    "tests/rocketmq/test_remoting_door.py": 295,
    "tests/e2e/test_runbook.py": 290,
    "tests/rocketmq/test_follow.py": 275,
    "tests/pipeline/test_cluster_without_a_disk.py": 270,
    "tests/newcomers/test_first_steps.py": 270,
    "tests/gateway/search/test_search_messages.py": 230,
    "tests/pipeline/test_frames.py": 210,
    "tests/pipeline/test_docs.py": 210,
    "tests/pipeline/rebuild/test_object_out_on_spark.py": 200,
    "tests/deploy/test_prometheus.py": 195,
    "tests/deploy/test_kubernetes_cluster.py": 190,
    "tests/torture/test_bit_rot.py": 180,
    "tests/torture/test_failing_calls.py": 180,
    "tests/pipeline/rebuild/test_rebuild_of_real_broker.py": 175,
    "tests/e2e/test_rolling_restart.py": 165,
    "tests/e2e/test_cluster.py": 160,
    "tests/deploy/test_kubernetes_replicas.py": 150,
    "tests/rocketmq/test_differential.py": 145,
    "tests/rocketmq/test_traces.py": 145,
    "tests/e2e/test_paging.py": 140,
    "tests/clients/test_reput.py": 135,
    "tests/e2e/test_follow.py": 135,
    "tests/torture/test_fsck_damage.py": 120,
    "tests/cluster/test_failovers.py": 115,
    "tests/torture/test_slow_readers.py": 110,
    "tests/e2e/test_consumer_kills.py": 110,
    "tests/torture/test_fuzz.py": 105,
    "tests/commitlog_svc/replication/leading/test_leadership_rules.py": 100,
    "tests/torture/test_schedule_kills.py": 100,
    "tests/rocketmq/test_queue_ext_written.py": 100,
    "tests/e2e/test_shard_appends.py": 100,
    "tests/pipeline/archive/test_object_store.py": 95,
    "tests/pipeline/analytics/test_groups.py": 90,
    "tests/rocketmq/test_interop.py": 90,
    "tests/e2e/test_mirror.py": 90,
    "tests/e2e/test_cluster_life.py": 90,
    "tests/cluster/test_cut_off.py": 85,
    "tests/pipeline/test_spark_session.py": 80,
    "tests/rocketmq/test_fsyncgate.py": 75,
    "tests/e2e/test_replica_reads.py": 75,
    "tests/soak/test_soak.py": 80,
    "tests/cluster/test_checker.py": 70,
    "tests/cluster/test_disks.py": 70,
    "tests/rocketmq/test_topics.py": 65,
    "tests/deploy/test_background.py": 65,
    "tests/rocketmq/test_mqadmin_verbs.py": 65,
    "tests/cluster/test_coordinator.py": 65,
    "tests/e2e/test_read_your_write.py": 60,
    "tests/deploy/test_chart_ways.py": 60,
    "tests/cluster/test_returning_replicas.py": 60,
}


class LongFilesFirst(LoadFileScheduling):
    """xdist's scheduling by file, for tests in the order that they were collected in, with those of a shared fixture as one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return shared_by(self.config.rootpath / file) or file

    def _assign_work_unit(self, node: WorkerController) -> None:
        busy = sum(self._waits(other) for other in self.assigned_work if other is not node)
        wanted = busy < max(len(self.assigned_work) // 3, 1)
        unit = next((scope for scope in self.workqueue if scope.startswith(WAITS) is wanted), None)
        if unit is not None:
            self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _waits(self, node: WorkerController) -> bool:
        """Whether the file that was given to a process last mostly waits, and has tests left."""
        units = self.assigned_work[node]
        last = next(reversed(units), "")
        return last.startswith(WAITS) and not all(units[last].values())

    def _reschedule(self, node: WorkerController) -> None:
        # One that is left over begins when the process knows what comes after it.
        if node.shutting_down or not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@functools.cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@functools.cache  # asked three times a test
def shared_by(path: Path) -> str:
    """The fixture of `SHARED` that a file asks for; empty for none."""
    return next((name for name, asks in ASKS_FOR.items() if asks.search(_text_of(path))), "")


@functools.cache
def place_of(path: Path, root: Path) -> tuple[int, int]:
    """Where a file comes, small before large: shared fixtures, then what is recorded, then what starts processes."""
    if shared := shared_by(path):
        return 0, SHARED.index(shared)
    if seconds := SECONDS.get(path.relative_to(root).as_posix() if path.is_relative_to(root) else ""):
        return 1, -seconds
    return 2, 0 if STARTS_PROCESSES.search(_text_of(path)) else 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first; within a file everything stays in its order."""
    items.sort(key=lambda item: place_of(item.path, config.rootpath))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a shared fixture when this process runs no file that asks for it next; one that comes later has a new one."""
    shared = shared_by(item.path)
    if shared and (nextitem is None or shared_by(nextitem.path) != shared):
        # What pytest itself does with a fixture whose parameter changes.
        for fixture in item.session._fixturemanager.getfixturedefs(shared, item) or ():
            fixture.finish(item._request)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongFilesFirst:
    """The scheduler of this run."""
    return LongFilesFirst(config, log)
