"""A rebuild into an object store on a Spark session: the verb, what it says when the store refuses, and one that is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main
from pipeline.rebuild.out import BEGUN_NAME, MANIFEST_NAME
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.support.object_store import CREDENTIALS, ROOT, running_object_store
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def object_store():
    with running_object_store() as store:
        store.fs.create_dir("rebuilt")
        yield store


@pytest.fixture
def credentials(spark, monkeypatch):
    """What a user's shell would have set, here and for the tasks of a session that began before."""
    environment = spark.sparkContext.environment
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(environment, name, value)


def test_the_verb_makes_the_objects_that_scatter_makes_files_of(
    spark, credentials, object_store, broker_store, tmp_path, capfd
):
    uri = object_store.uri("rebuilt/by-the-verb")
    rebuild_here(broker_store, tmp_path / "scattered")

    assert main(["pipeline", "rebuild", "--store", str(broker_store), "--out", uri, "--split-bytes", "400000"]) == 0

    report = json.loads(capfd.readouterr().out)
    down = object_store.download("rebuilt/by-the-verb", tmp_path / "down")
    assert_same_store(down, tmp_path / "scattered")
    assert_same_store(down, broker_store)
    assert report["outputs"]["consumequeue"] == "s3://rebuilt/by-the-verb/consumequeue"
    manifest = json.loads((down / MANIFEST_NAME).read_bytes())
    assert len(manifest["queue_files"]) == report["counts"]["queue_file_count"]


def test_an_object_store_that_refuses_in_the_middle_ends_the_verb_with_its_words(
    spark, credentials, object_store, broker_store, capfd
):
    object_store.tell("refuse", "refusing/consumequeue", 3, 1000)

    code = main(["pipeline", "rebuild", "--store", str(broker_store), "--out", object_store.uri("rebuilt/refusing")])

    object_store.tell("release")
    said = capfd.readouterr().err
    assert code == 2
    assert "PERMISSION_DENIED" in said
    assert "AWS_ACCESS_KEY_ID" in said
    assert MANIFEST_NAME not in object_store.sizes("rebuilt/refusing")


def processes_of(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                state, _, of = (directory / "stat").read_text().rpartition(") ")[2].split()[:3]
            except OSError:
                continue
            if int(of) == group and state != "Z":
                found.append(int(directory.name))
    return found


def test_a_killed_rebuild_looks_unfinished_and_runs_again(spark, credentials, object_store, broker_store, tmp_path):
    path = "rebuilt/killed"
    arguments = ["pipeline", "rebuild", "--store", str(broker_store), "--out", object_store.uri(path)]
    object_store.tell("hold", "killed/consumequeue", 4)
    (tmp_path / "local").mkdir()
    driver = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments, "--master", "local[2]"],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
        | {"SPARK_LOCAL_DIRS": str(tmp_path / "local")},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert object_store.said() == "held"
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        # Java ends when its driver is gone, and its Python workers with it.
        wait_until(lambda: processes_of(driver.pid) == [], lambda: processes_of(driver.pid))
    finally:
        for process in processes_of(driver.pid):
            os.kill(process, signal.SIGKILL)
        driver.wait()
    object_store.tell("release")
    killed = object_store.sizes(path)

    assert main(arguments) == 0

    assert BEGUN_NAME in killed
    assert MANIFEST_NAME not in killed
    assert len(killed) > 1, "the test wants one that was killed half-way"
    down = object_store.download(path, tmp_path / "down")
    assert_same_store(down, broker_store)
    manifest = json.loads((down / MANIFEST_NAME).read_bytes())
    assert {name for name in object_store.sizes(path) if "/" in name} == {
        file["path"] for file in manifest["queue_files"] + manifest["index_files"]
    }
