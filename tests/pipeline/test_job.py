"""A directory that an executor does not see is an error that names the machine; a scan never takes it for an empty log."""

import socket
from pathlib import Path
from typing import Any

import pytest

from pipeline.job import refuse_unshared, refuse_unshared_output
from pipeline.scan.log_files import LogFile, LogFileGoneError
from store.errors import InvalidArgumentError, UnsupportedStoreError
from store.files.file_system import RealFileSystem


class Cluster:
    """As much of a session as is used, with one machine; before each task, it does what the test says."""

    def __init__(self, before: Any = bool, master: str = "spark://host:7077") -> None:
        self.sparkContext = self
        self.master = master
        self.defaultParallelism = 2
        self._before = before

    def parallelize(self, items: range, count: int) -> "Cluster":
        self._items = items
        return self

    def map(self, task: Any) -> "Cluster":
        self._task = task
        return self

    def collect(self) -> list[str]:
        self._before()
        return [self._task(item) for item in self._items]


def test_what_is_shared_passes_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "store/commitlog").mkdir(parents=True)
    (tmp_path / "store/commitlog/00000000000000000000").touch()
    spark: Any = Cluster()

    refuse_unshared(spark, tmp_path / "store", "store")
    refuse_unshared_output(spark, tmp_path / "made/later", "out")
    refuse_unshared(spark, "s3://bucket/store?region=here", "store")

    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_is_not_shared_is_refused_by_the_name_of_the_machine(tmp_path: Path) -> None:
    log = tmp_path / "store/commitlog"
    log.mkdir(parents=True)
    (log / "00000000000000000000").touch()
    blind: Any = Cluster(before=lambda: [path.unlink() for path in log.iterdir()])

    with pytest.raises(InvalidArgumentError, match=rf"is not the same directory on {socket.gethostname()}") as caught:
        refuse_unshared(blind, tmp_path / "store", "store")
    assert caught.value.metadata["field"] == "store"
    blind = Cluster(before=lambda: [path.unlink() for path in tmp_path.glob(".reput-shared-*")])
    with pytest.raises(InvalidArgumentError, match="name a place in an object store"):
        refuse_unshared_output(blind, tmp_path / "out", "out")
    for one_machine in (None, Cluster(before=pytest.fail, master="local[2]")):
        refuse_unshared(one_machine, tmp_path / "store", "store")  # type: ignore[arg-type]


def test_a_log_whose_directory_is_not_there_is_not_a_log_that_retention_has_emptied(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "commitlog/00000000000000000000"), 0, 1024)

    with pytest.raises(UnsupportedStoreError, match="driver and executors must see the store under one path"):
        file.open(RealFileSystem())
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(LogFileGoneError):
        file.open(RealFileSystem())
