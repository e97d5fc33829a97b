"""Where a rebuild writes: into a directory beside its goal, which is renamed to the goal in one step.

    OUT.tmp/consumequeue/ index/     written here
    OUT.tmp/scratch/                 files for later tasks; removed before the end
    OUT.tmp/rebuild.lock             held while a rebuild runs; marks the directory as a rebuild's
    OUT                              OUT.tmp renamed: all of it, or nothing

The directory of a killed rebuild is recognised by its lock file, and made anew.
"""

import os
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError, StoreLockedError
from store.files.file_system import FileSystem
from store.files.locks import OwnerLock
from store.format.paths import consume_queue_dir, index_dir, index_file_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_NAME = "rebuild.lock"
SPECULATION_SETTING = "spark.speculation"


def index_names(begin_millis: int) -> Iterator[str]:
    """Names of index files, one for each millisecond from a time on.

    Args:
        begin_millis: the time of the first name, milliseconds since 1970 UTC.
    """
    name = index_file_name(begin_millis)
    while True:
        yield name
        moment = datetime.strptime(name[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(name[14:]) + 1)
        name = f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def refuse_out(source: Path, out: Path) -> None:
    """InvalidArgumentError if a rebuild of `source` cannot write to `out`."""
    refuse_inside(source, out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidArgumentError(
            f"{out} holds other data: name a directory that is empty or does not exist.", field="out", file=out
        )


def refuse_inside(source: Path, out: Path) -> None:
    """InvalidArgumentError if one of two directories lies in the other."""
    inside, outside = out.resolve(), source.resolve()
    if inside == outside or inside.is_relative_to(outside) or outside.is_relative_to(inside):
        raise InvalidArgumentError(
            f"{out} lies in the store {source}, or the store in it: a rebuild never writes into its source; name another one.",
            field="out",
            file=out,
        )


def refuse_speculation(spark: "SparkSession") -> None:
    """InvalidArgumentError if Spark may run a task twice at once: in a directory, both attempts write the same files.

    One attempt could remove files of a queue that begins anew, and truncate scratch files of keys, while the other one
    uses them. An attempt after a failed one runs alone, and writes all files again.
    """
    if spark.sparkContext.getConf().get(SPECULATION_SETTING, "false").lower() == "true":
        raise InvalidArgumentError(
            f"{SPECULATION_SETTING} is on: two attempts at a task would write the same files of a directory; set it to "
            "false, or rebuild into an object store.",
            field=SPECULATION_SETTING,
        )


class Staging:
    """The directory that becomes `out`; a context manager that leaves nothing behind after an error.

    Args:
        fs: the port to the disk.
        out: the goal.

    Attributes:
        root: the store root being written.
        scratch: for files that only tasks need.
    """

    def __init__(self, fs: FileSystem, out: Path) -> None:
        self.root = out.with_name(out.name + ".tmp")
        self.scratch = self.root / "scratch"
        self._fs = fs
        self._out = out
        self._lock = OwnerLock(self.root / LOCK_NAME, wait_seconds=0)

    def __enter__(self) -> "Staging":
        if (
            self.root.exists()
            and not (self.root / LOCK_NAME).exists()
            and (not self.root.is_dir() or any(self.root.iterdir()))
        ):
            raise InvalidArgumentError(
                f"{self.root} holds other data: a rebuild writes there before it renames; move the data away.",
                field="out",
                file=self.root,
            )
        self._fs.mkdirs(self.root)
        try:
            self._lock.acquire()
        except StoreLockedError as error:
            raise StoreLockedError(
                f"another rebuild to {self._out} is running ({error.message})", file=self.root
            ) from error
        for path in self.root.iterdir():
            if path.name != LOCK_NAME:
                shutil.rmtree(path)
        self._fs.mkdirs(consume_queue_dir(str(self.root)))
        self._fs.mkdirs(index_dir(str(self.root)))
        self._fs.mkdirs(self.scratch)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self.root.exists():
                shutil.rmtree(self.root)
        finally:
            self._lock.release()

    def publish(self, *, is_flushed: bool) -> None:
        """Renames the directory to `out`.

        Args:
            is_flushed: whether all folders must be flushed before.
        """
        shutil.rmtree(self.scratch)
        if is_flushed:
            for directory, _, _ in os.walk(self.root, topdown=False):
                self._fs.fsync_dir(directory)
        (self.root / LOCK_NAME).unlink()
        self._fs.rename(self.root, self._out)
        if is_flushed:
            self._fs.fsync_dir(self._out.parent)
