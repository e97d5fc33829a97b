"""Our side: the six services as a user starts them, for the rows."""

import contextlib
import pathlib
import signal
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from benchmarks import processes
from deploy.modules import MODULES
from tests.support.stack import Stack

STOP_SECONDS_MAX = 60
BUILT_SECONDS_MAX = 1800.0


class OurStack(Stack):
    """`reput serve` with all its processes and the settings that a user has; the default ports are the real RocketMQ's."""

    defaults = MappingProxyType(
        {"REPUT_NAMESERVER_REMOTING_ADDRESS": "127.0.0.1:0", "REPUT_GATEWAY_REMOTING_ADDRESS": "127.0.0.1:0"}
    )
    is_forked = False

    def children(self) -> dict[str, int]:
        """The services' process ids, by the name of their module; of a single process, its own for each."""
        return super().children() or dict.fromkeys(MODULES.values(), self.process.pid)

    def pids(self) -> list[int]:
        """The supervisor and the six services."""
        return processes.family(self.process.pid)

    def end(self) -> None:
        """Ends all processes cleanly, and by force when that takes too long."""
        self.channel.close()
        processes.end(self.process, signal.SIGTERM)


class OneProcess(OurStack):
    """All services in one process."""

    def __init__(self, store: pathlib.Path, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(store, "--single-process", settings=settings)


@contextlib.contextmanager
def running_stack(
    store: pathlib.Path, settings: Mapping[str, str] | None = None, *, single_process: bool = False
) -> Iterator[OurStack]:
    """The six services on free ports, with name server and remoting door; they end with the block."""
    stack = (OneProcess if single_process else OurStack)(store, settings=settings)
    try:
        yield stack
    finally:
        stack.end()
