"""The pipeline on two workers of a cluster.

First a job that is submitted, with nothing of the project on the workers' path but the zip. Then every job and both formats
from a driver that shares no directory with the workers, only an object store; speculation is on. The workers have mounts of
their own (`standalone.py`): where that driver has its files, they see an empty directory.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.ship import ZIP_NAME, write_zip
from store.format.record import Record, decode_record
from tests.pipeline.rebuild.rebuilding import assert_same_store
from tests.pipeline.rocketmq.gateways import append
from tests.pipeline.standalone import Cluster, can_hide, running_cluster
from tests.support.fixture_stores import walk_frames
from tests.support.object_store import CREDENTIALS, ROOT, ObjectStore, running_object_store
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
# The sizes of the fixture's files, for a restore, which knows only the log.
LAYOUT = {
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "1280",
    "REPUT_INDEX_HASH_SLOT_COUNT": "97",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "200",
}
READY_SECONDS_MAX = 240.0
SUBMIT_SECONDS_MAX = 600.0


class Driver:
    """The driver's process, and a cluster that sees nothing of `directory`.

    Attributes:
        directory: where the driver has its files.
    """

    def __init__(self, directory: Path, cluster: Cluster, process: "subprocess.Popen[str]", commands: Path) -> None:
        self.directory = directory
        self.cluster = cluster
        self._process = process
        self._commands = open(commands, "w", encoding="utf-8")  # noqa: SIM115 - closed by close

    def begin(self, *arguments: str) -> None:
        self._commands.write(json.dumps(arguments) + "\n")
        self._commands.flush()

    def ended(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.directory / "driver.log").read_text()[-4000:]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, *arguments: str, code: int = 0) -> Any:
        """Runs a verb, or Python; its report, or what it answers."""
        self.begin(*arguments)
        return self.report(code)

    def report(self, code: int | None = 0) -> Any:
        """What the command said on stdout, of a failed one on stderr; `code` None: it may have found something."""
        answer = self.ended()
        assert answer["code"] == code or (code is None and answer["code"] in (0, 1)), answer
        return answer["err"] if code else json.loads(answer["out"])

    def close(self) -> None:
        self._commands.close()


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    with running_object_store() as store:
        store.fs.create_dir("shared")
        yield store


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers that see nothing of `cluster.hidden`, where this machine lets them."""
    root = tmp_path_factory.mktemp("cluster")
    (root / "driver").mkdir()
    further = {**CREDENTIALS, "XDG_CACHE_HOME": str(root / "cache")}
    with running_cluster(root / "cluster", hidden=root / "driver" if can_hide() else None, further=further) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[Driver]:
    directory = cluster.hidden
    if directory is None:
        pytest.skip("needs the right to mount (unshare --mount), such as root has")
    (directory / "tmp").mkdir()
    os.mkfifo(directory / "commands")
    environment = {
        **cluster.environment(),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos"))),
        "TMPDIR": str(directory / "tmp"),
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        **LAYOUT,
    }
    with (
        open(directory / "driver.log", "wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.cluster_driver", cluster.url, str(directory / "commands")],
            stdout=subprocess.PIPE, stderr=log, env=environment, cwd=directory, text=True,
        ) as process,
    ):  # fmt: skip
        driver = Driver(directory, cluster, process, directory / "commands")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", (directory / "driver.log").read_text()[-4000:]
        wait_until(
            lambda: all(len(pids) == 1 for pids in cluster.executors()),
            cluster.executors,
            seconds=READY_SECONDS_MAX,
        )
        try:
            yield driver
        finally:
            driver.close()
            process.wait(WAIT_SECONDS_MAX)


@pytest.fixture(scope="module")
def records(engine_store: Path) -> list[Record]:
    return [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(engine_store)]


@pytest.fixture(scope="module")
def store(object_store: ObjectStore, engine_store: Path) -> str:
    return object_store.upload(engine_store, "shared/store")


@pytest.fixture(scope="module")
def archive(driver: Driver, object_store: ObjectStore, store: str) -> str:
    uri = object_store.uri("shared/archive")
    driver.run("archive", "--store", store, "--archive", uri, "--include-active")
    return uri


def test_a_rebuild_that_is_submitted_needs_nothing_but_the_zip(
    cluster: Cluster, engine_store: Path, tmp_path: Path
) -> None:
    """The first test: the workers' processors are free for it."""
    archive, out = tmp_path / ZIP_NAME, tmp_path / "out"
    write_zip(archive)
    elsewhere = tmp_path / "elsewhere"  # no checkout below the working directory
    elsewhere.mkdir()
    environment = cluster.environment()
    environment.pop("PYTHONPATH", None)
    command = [
        str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", cluster.url, "--py-files", str(archive),
        "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m",
        "--conf", f"spark.executor.extraJavaOptions={environment['SPARK_SUBMIT_OPTS']}",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
        str(ROOT / "cli" / "submit.py"), "rebuild", "--store", str(engine_store), "--out", str(out),
        "--split-bytes", str(64 << 10),
    ]  # fmt: skip
    ended = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=SUBMIT_SECONDS_MAX
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-5000:]
    assert len(cluster.worker_ports()) == 2
    # Each executor has lived from the zip, not from an installation that this machine may have.
    assert len(list(cluster.work.glob(f"worker-*/app-*/*/{ZIP_NAME}*.unpacked"))) == 2
    report = json.loads(ended.stdout[ended.stdout.index("{") :])
    assert report["job"] == "rebuild"
    assert_same_store(out, engine_store)
    assert not list(elsewhere.iterdir()), os.listdir(elsewhere)


def test_a_rebuild_from_objects_into_objects_makes_rocketmqs_files(
    driver: Driver, object_store: ObjectStore, store: str, engine_store: Path, tmp_path: Path
) -> None:
    driver.run("rebuild", "--store", store, "--out", object_store.uri("shared/rebuilt"), "--split-bytes", str(64 << 10))

    assert_same_store(object_store.download("shared/rebuilt", tmp_path / "down"), engine_store)
    assert len(driver.cluster.worker_ports()) == 2


@pytest.mark.release
def test_an_audit_with_its_scratch_files_in_the_object_store_finds_nothing_wrong(
    driver: Driver, object_store: ObjectStore, store: str, records: list[Record]
) -> None:
    driver.begin(
        "audit", "--store", store, "--scratch", object_store.uri("shared/scratch"),
        "--out", object_store.uri("shared/found.parquet"),
    )  # fmt: skip
    report = driver.report(code=None)

    assert (report["counts"]["record_count"], report["counts"]["error_count"]) == (len(records), 0)
    assert report["counts"]["key_count"] == report["counts"]["entry_count"] > 0
    assert list(object_store.sizes("shared/scratch")) == []
    assert object_store.sizes("shared")["found.parquet"] > 0


def test_an_archive_in_the_object_store_is_verified_queried_and_restored(
    driver: Driver, object_store: ObjectStore, archive: str, records: list[Record], engine_store: Path, tmp_path: Path
) -> None:
    verified = driver.run("archive", "--archive", archive, "--verify")
    wanted = next(record for record in records if record.keys)
    found = driver.run(
        "query", "byKey", "--archive", archive, "--topic", wanted.topic, "--msgKey", wanted.keys[0], "-O", "json"
    )
    driver.run("restore", "--archive", archive, "--out", object_store.uri("shared/restored"))

    assert (verified["findings"], verified["counts"]["record_count"]) == ([], len(records))
    assert found["messages"]
    down = object_store.download("shared/restored", tmp_path / "down")
    assert_same_store(down, engine_store)
    for path in (engine_store / "commitlog").iterdir():
        assert (down / "commitlog" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.release
def test_analytics_writes_its_tables_as_objects(
    driver: Driver, object_store: ObjectStore, store: str, records: list[Record], tmp_path: Path
) -> None:
    driver.run("analytics", "--store", store, "--out", object_store.uri("shared/tables"))

    topics = pq.read_table(object_store.download("shared/tables", tmp_path / "down") / "topics.parquet")
    assert sum(topics.column("message_count").to_pylist()) == len(records)


def test_both_formats_read_and_write(driver: Driver, store: str, records: list[Record], tmp_path: Path) -> None:
    code = f'answer = spark.read.format("commitlog").option("boundaryCache", "off").load({store!r}).count()'
    assert driver.run("python", code) == len(records)
    with hosted_stack(tmp_path / "stack") as stack:
        endpoint = stack.addresses["gateway"]
        append(endpoint, "From", [b"%d" % number for number in range(40)])
        stack.wait_until_built()
        code = f"""
from pyspark.sql import functions as f
rows = spark.read.format("rocketmq").option("endpoint", {endpoint!r}).option("subscribe", "From").load()
sink = rows.select(f.lit("Into").alias("topic"), "body").write.format("rocketmq").option("endpoint", {endpoint!r})
sink.mode("append").save()
"""
        driver.run("python", code + "answer = 0")
        stack.wait_until_built()
        read = f'spark.read.format("rocketmq").option("endpoint", {endpoint!r}).option("subscribe", "Into").load()'
        bodies = driver.run("python", f"answer = [bytes(row.body).decode() for row in {read}.collect()]")
    assert sorted(map(int, bodies)) == list(range(40))


def test_a_directory_that_is_not_shared_is_refused_before_a_job_begins(
    driver: Driver, object_store: ObjectStore, store: str, archive: str, engine_store: Path
) -> None:
    here = driver.directory / "here"
    shutil.copytree(engine_store, here / "store")
    for arguments in (
        ["audit", "--store", store],  # its scratch files
        ["audit", "--store", str(here / "store"), "--scratch", object_store.uri("shared/scratch")],
        ["rebuild", "--store", str(here / "store"), "--out", object_store.uri("shared/nothing")],
        ["archive", "--store", store, "--archive", str(here / "archive")],
        ["analytics", "--store", store, "--out", str(here / "tables")],
    ):
        said = driver.run(*arguments, code=2)
        assert "is not the same directory on" in said, said
        assert "name a place in an object store" in said
    said = driver.run("restore", "--archive", archive, "--out", str(here / "restored"), code=2)
    assert "spark.speculation is on" in said
    code = (
        f'answer = spark.read.format("commitlog").option("boundaryCache", "off").load({str(here / "store")!r}).count()'
    )
    driver.begin("python", code)
    assert "driver and executors must see the store under one path" in driver.ended()["err"]
    assert sorted(path.name for path in here.iterdir()) == ["store"]
    assert object_store.sizes("shared/nothing") == {}


JOBS = {
    "archive": (
        "killed-archive/messages",
        lambda o, s, a: ["archive", "--store", s, "--archive", o, "--include-active"],
    ),
    "restore": ("killed-restore/consumequeue", lambda o, s, a: ["restore", "--archive", a, "--out", o]),
    "rebuild": ("killed-rebuild/consumequeue", lambda o, s, a: ["rebuild", "--store", s, "--out", o]),
    "analytics": ("killed-analytics/.analytics", lambda o, s, a: ["analytics", "--store", s, "--out", o]),
    "audit": ("killed-audit/reput-audit", lambda o, s, a: ["audit", "--store", s, "--scratch", o]),
}


@pytest.mark.parametrize(
    "job", [name if name == "archive" else pytest.param(name, marks=pytest.mark.release) for name in JOBS]
)
def test_a_job_completes_although_its_executors_are_killed_in_its_middle(
    job: str, driver: Driver, object_store: ObjectStore, store: str, archive: str, records: list[Record],
    engine_store: Path, tmp_path: Path
) -> None:  # fmt: skip
    fragment, arguments = JOBS[job]
    object_store.tell("hold", fragment, 0)
    driver.begin(*arguments(object_store.uri(f"shared/killed-{job}"), store, archive))
    assert object_store.said() == "held"
    victims = [pid for pids in driver.cluster.executors() for pid in pids]
    for pid in victims:  # all of them: one has the task that waits
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _is_replaced(driver.cluster, victims), driver.cluster.executors, seconds=READY_SECONDS_MAX)
    object_store.tell("release")

    report = driver.report(code=None if job == "audit" else 0)

    check(job, report, driver, object_store, records, engine_store, tmp_path)


def _is_replaced(cluster: Cluster, before: list[int]) -> bool:
    now = [pid for pids in cluster.executors() for pid in pids]
    return len(now) == len(before) and not set(now) & set(before)


@pytest.mark.release
def test_a_job_completes_although_a_worker_is_killed_in_its_middle(
    driver: Driver, object_store: ObjectStore, store: str, archive: str, records: list[Record], engine_store: Path,
    tmp_path: Path
) -> None:  # fmt: skip
    """The last test: the cluster has one worker from here on."""
    object_store.tell("hold", "less-one/messages", 0)
    uri = object_store.uri("shared/less-one")
    driver.begin("archive", "--store", store, "--archive", uri, "--include-active")
    assert object_store.said() == "held"
    driver.cluster.kill_worker(0)
    wait_until(
        lambda: sum(map(len, driver.cluster.executors())) == 1, driver.cluster.executors, seconds=READY_SECONDS_MAX
    )
    object_store.tell("release")

    driver.report()

    verified = driver.run("archive", "--archive", uri, "--verify")
    assert (verified["findings"], verified["counts"]["record_count"]) == ([], len(records))


def check(
    job: str,
    report: Any,
    driver: Driver,
    object_store: ObjectStore,
    records: list[Record],
    engine_store: Path,
    tmp_path: Path,
) -> None:
    """What the job made is what it makes undisturbed."""
    path = f"shared/killed-{job}"
    if job == "archive":
        verified = driver.run("archive", "--archive", object_store.uri(path), "--verify")
        assert (verified["findings"], verified["counts"]["record_count"]) == ([], len(records))
    elif job == "audit":
        assert (report["counts"]["record_count"], report["counts"]["error_count"]) == (len(records), 0)
    elif job == "analytics":
        topics = pq.read_table(object_store.download(path, tmp_path / "down") / "topics.parquet")
        assert sum(topics.column("message_count").to_pylist()) == len(records)
    else:
        assert_same_store(object_store.download(path, tmp_path / "down"), engine_store)
