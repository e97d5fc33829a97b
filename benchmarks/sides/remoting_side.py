"""RocketMQ's own Java client over its remoting protocol, the same on both sides: rows 26 to 30."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import ECHO, OURS
from benchmarks.load import TOPIC
from benchmarks.row import Context
from benchmarks.sides import remoting, rocketmq_side
from benchmarks.sides.remoting_echo import running_remoting_echo

QUEUE_COUNT = 8
BODY_BYTES = 1024
FILL_BATCH, FILL_THREADS = 32, 2
# By default it refuses what a busy machine lets wait for 200 ms.
PATIENT = {"waitTimeMillsInSendQueue": 10_000}


@dataclass(frozen=True)
class Served:
    """A side that runs and has the topic.

    Args:
        namesrv: address of its name server.
        port: of its broker on loopback; 0: there is none.
        work: a directory for the drivers.
        wait_until_built: returns when all that was sent can be read.
    """

    namesrv: str
    port: int
    work: pathlib.Path
    wait_until_built: Callable[[], object]

    def drive(self, main: str, *args: object) -> dict[str, Any]:
        """Runs one of our Java drivers with RocketMQ's client; returns its one line of JSON."""
        return rocketmq_side.run_driver(self.work, main, *args)

    def append(self, context: Context, thread_count: int, body_bytes: int, batch_count: int) -> dict[str, Any]:
        """What AppendLoad.java measures; RuntimeError when a send failed."""
        sizes = context.sizes
        return self._append(thread_count, body_bytes, batch_count, sizes.warm_seconds, sizes.measure_seconds)

    def fill(self, seconds: float) -> int:
        """Sends messages of 1 KiB for so many seconds; returns how many can be read then."""
        count = self._append(FILL_THREADS, BODY_BYTES, FILL_BATCH, 0, seconds)["count"]
        self.wait_until_built()
        return int(count)

    def _append(self, *args: object) -> dict[str, Any]:
        said = self.drive("AppendLoad", self.namesrv, TOPIC, *args)
        if said["errors"]:
            raise RuntimeError(f"{said['errors']} sends failed")
        return said


@contextlib.contextmanager
def serving(side: str, context: Context, *, sync: bool = False) -> Iterator[Served]:
    """A side with an empty topic; `sync`: sends are answered after the flush."""
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(context.directory())
        if side == ECHO:
            yield Served(stack.enter_context(running_remoting_echo()), 0, work, lambda: None)
        elif side == OURS:
            settings = {"REPUT_COMMITLOG_FLUSH_MODE": "sync" if sync else "async"}
            ours = stack.enter_context(context.ours(settings))
            port = int(ours.addresses["remoting"].rpartition(":")[2])
            remoting.create_topic(port, TOPIC, QUEUE_COUNT)
            yield Served(ours.addresses["nameserver"], port, work, ours.wait_until_built)
        else:
            flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
            theirs = stack.enter_context(context.theirs(flushDiskType=flush, **PATIENT))
            theirs.create_topic(TOPIC, QUEUE_COUNT)
            yield Served(theirs.namesrv, theirs.broker_port, work, theirs.wait_until_built)
