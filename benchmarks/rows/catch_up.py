"""Row 23: a replica with an empty disk gets the whole log."""

import contextlib
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator, Mapping

import grpc

from benchmarks import stores
from benchmarks.figures import ECHO, OURS, Medians, Metric, Target
from benchmarks.row import QUIET, Context, Row, SkippedError
from benchmarks.sizes import Sizes
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from tests.support.etcd import ETCD, MISSING, running_etcd
from tests.support.service import Service
from tests.support.waiting import wait_until

RATE = "on its disk"
COPY_PART, RATE_MIN = 0.7, 300.0
CATCH_UP_SECONDS_MAX = 600.0
POLL_SECONDS = 0.02
MB = 1e6


def _fast_enough(values: Medians) -> float:
    return min(RATE_MIN, COPY_PART * values[ECHO])


class CatchUp(Row):
    """Row 23."""

    number = 23
    title = "Catch-up of an empty replica"
    what = (
        "The log of row 8 on a leader, in the page cache; a second commit log process with an empty store is started. From its "
        "first answer until it says that the whole log is checked and on its disk. Beside it, as the bare echo: `cp` of the "
        "same files and a flush of the copies, which checks nothing. RocketMQ has no figure: an empty slave gets its master's "
        "last file only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = Target(f">= the lower of {RATE_MIN:g} MB/s and {COPY_PART:g} x a plain copy", _fast_enough)
        self.metrics = (Metric(RATE, "MB/s", target=target, sides=(OURS, ECHO)),)
        self._kept: stores.KeptStore | None = None

    def prepare(self, context: Context) -> None:
        """Makes the log."""
        self._kept = stores.log_store(context.stores, self.sizes, self.sizes.log_bytes, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        assert self._kept is not None
        with context.directory() as path:
            root = stores.copy_of(self._kept, path / "r1")
            stores.warm(root)
            os.sync()  # what the copies left is not flushed in measured time
            if side == ECHO:
                return {RATE: _plain_copy(root, path / "copy")}
            if ETCD is None:
                raise SkippedError(MISSING)
            return {RATE: self._ours(path, self._kept)}

    def _ours(self, path: pathlib.Path, kept: stores.KeptStore) -> float:
        with running_etcd(path / "etcd") as etcd:
            settings = QUIET | stores.settings(self.sizes, kept.log_file_bytes)
            settings |= {"REPUT_COMMITLOG_COORDINATOR": f"etcd://{etcd.endpoint}/reput"}
            with (
                _replica("r1", path, settings) as leader,
                _until_leading(leader),
                _replica("r2", path, settings, wait="answering") as follower,
            ):
                start = time.perf_counter()
                end_offset = _status(leader).confirm_offset
                wait_until(
                    lambda: _status(follower).log_flushed_offset >= end_offset,
                    lambda: f"{_status(follower)}",
                    seconds=CATCH_UP_SECONDS_MAX,
                    poll_seconds=POLL_SECONDS,
                )
                return float(end_offset / MB / (time.perf_counter() - start))


@contextlib.contextmanager
def _replica(name: str, path: pathlib.Path, settings: Mapping[str, str], wait: str = "serving") -> Iterator[Service]:
    service = Service("commitlog", path / name, {**settings, "REPUT_COMMITLOG_REPLICA_NAME": name}, wait=wait)
    try:
        yield service
    finally:
        service.kill()


@contextlib.contextmanager
def _until_leading(service: Service) -> Iterator[None]:
    """Waits first: a new record is made after a lease."""
    wait_until(lambda: _status(service).role == "leader", "the first replica leads", seconds=CATCH_UP_SECONDS_MAX)
    yield


def _status(service: Service) -> pb.GetStatusResponse:
    try:
        status: pb.GetStatusResponse = service.stub.GetStatus(pb.GetStatusRequest(), timeout=10)
    except grpc.RpcError:  # it is still starting
        return pb.GetStatusResponse()
    return status


def _plain_copy(root: pathlib.Path, target: pathlib.Path) -> float:
    """MB/s of `cp` of the log's files, with a flush of each copy and of their directory."""
    files = sorted((root / "commitlog").iterdir())
    target.mkdir()
    start = time.perf_counter()
    for file in files:
        subprocess.run(["cp", "--reflink=never", "--sparse=never", str(file), str(target)], check=True)
        _flush(target / file.name)
    _flush(target)
    return sum(file.stat().st_size for file in files) / MB / (time.perf_counter() - start)


def _flush(path: pathlib.Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
