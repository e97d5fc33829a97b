"""What a program can leave behind in its process: threads, descriptors, signal handlers, settings of the whole process."""

import contextlib
import gc
import logging
import os
import pathlib
import resource
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest import mock

import structlog

from services.observing import tracing
from store.compiled import loading
from store.format.delivery.delay_levels import delay_levels_in_use
from tests.support.waiting import wait_until

# gRPC makes these with its first channel and keeps them until the end of the process.
OF_GRPC = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")
OF_GRPC_THREADS = ("kernels",)  # loads a kernel and ends by itself


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of this process; `differences` says what was left behind between two."""

    threads: frozenset[str]
    descriptors: frozenset[str]
    handlers: tuple[object, ...]
    wakeup_fd: int
    umask: int
    descriptor_limit: tuple[int, int]
    structlog: object
    log_handlers: tuple[object, ...]
    tracer_is_on: bool
    kernels: str
    delay_levels: tuple[int, ...]
    environ: frozenset[tuple[str, str]]
    temporary_files: frozenset[str]

    @classmethod
    def now(cls, temporary: pathlib.Path, pools: Sequence[ThreadPoolExecutor] = ()) -> "ProcessState":
        """The state of this moment; for the main thread.

        Args:
            temporary: the directory of temporary files.
            pools: their threads do not count.
        """
        umask = os.umask(0o077)
        os.umask(umask)
        wakeup_fd = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(wakeup_fd)
        return cls(
            frozenset(
                f"{thread.name} {thread.ident}"
                for thread in threading.enumerate()
                if thread.name not in OF_GRPC_THREADS and not any(thread in pool._threads for pool in pools)
            ),
            frozenset(
                f"{path.name} {target}"
                for path in pathlib.Path("/proc/self/fd").iterdir()
                if (target := _target(path)) and target not in OF_GRPC
            ),
            tuple(signal.getsignal(number) for number in signal.valid_signals()),
            wakeup_fd,
            umask,
            resource.getrlimit(resource.RLIMIT_NOFILE),
            tuple(sorted((name, repr(value)) for name, value in structlog.get_config().items())),
            tuple(logging.getLogger().handlers),
            tracing.is_on(),
            loading._mode,
            delay_levels_in_use(),
            frozenset(item for item in os.environ.items() if item[0] != "PYTEST_CURRENT_TEST"),
            frozenset(os.listdir(temporary)),
        )

    def differences(self, later: "ProcessState") -> dict[str, object]:
        """What a later state has or does otherwise, by name.

        Threads and descriptors that have gone are no difference: earlier tests may have left them to the garbage collector.
        """
        found: dict[str, object] = {}
        for name in self.__slots__:
            mine, theirs = getattr(self, name), getattr(later, name)
            if isinstance(mine, frozenset):
                if theirs - mine:
                    found[name] = sorted(theirs - mine)
            elif mine != theirs:
                found[name] = (mine, theirs)
        return found


def _target(path: pathlib.Path) -> str:
    """What a descriptor is; empty for the one of the listing, which is closed."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """After the block the process is what it was before it. What is made once a process (imports, gRPC) is made before.

    Without the garbage collector, which ends threads of pools and closes files at a time that nobody knows. Pools that were
    there before, such as those of another test's stack, may start threads meanwhile.
    """
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as made,
        mock.patch.object(tempfile, "tempdir", made),
    ):  # short, for sockets
        gc.collect()
        pools = [each for each in gc.get_objects() if isinstance(each, ThreadPoolExecutor)]
        before = ProcessState.now(pathlib.Path(made), pools)
        gc.disable()
        try:
            yield

            def differences() -> dict[str, object]:
                return before.differences(ProcessState.now(pathlib.Path(made), pools))

            wait_until(lambda: not differences(), differences)
        finally:
            gc.enable()
