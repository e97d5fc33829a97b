"""A service whose calls that change the disk are counted, and that dies, or has another one die, at one of them.

    calls = ArmedCalls(tmp_path / "armed")
    with all_services(store, calls.environment) as services:
        calls.arm("commitlog", 3, "cut")            # at the third call from now on: a power cut (tests/torture/faulty_os.py)
        calls.arm("commitlog", 3, f"other {pid}")   # the process of that id dies then, and this one goes on

An armed call that is not made yet waits for its time; arming again replaces it.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture.faulty_os import Call, FaultyOs, install

ROOT = Path(__file__).parents[3]
DIRECTORY = "TORTURE_ARMED_CALLS"
MODULES = ("commitlog_svc", "consumequeue_svc", "schedule_svc")
COUNTED = (
    "open",
    "pwrite",
    "pwritev",
    "fdatasync",
    "fsync",
    "ftruncate",
    "posix_fallocate",
    "mkdir",
    "replace",
    "unlink",
)
BEGINNING = "import tests.torture.tools.armed_calls as armed_calls\narmed_calls.begin()\n"


class ArmedCalls:
    """The test's side.

    Args:
        directory: of its own; made.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(BEGINNING)
        self._directory = directory

    @property
    def environment(self) -> dict[str, str]:
        """What makes services count."""
        paths = (str(self._directory), str(ROOT), str(ROOT / "protos"))
        return {"PYTHONPATH": os.pathsep.join(paths), DIRECTORY: str(self._directory)}

    def arm(self, service: str, number: int, action: str) -> None:
        """Have something happen at the n-th call of a service from now on."""
        temporary = self._directory / "new"
        temporary.write_text(f"{number} {action}")
        temporary.replace(self._directory / f"{service}_svc")

    def disarm(self) -> None:
        """Forget what no service has heard of yet."""
        for module in MODULES:
            (self._directory / module).unlink(missing_ok=True)


class ArmedOs(FaultyOs):
    """The service's side: one call at a time, because its threads share the counts.

    Args:
        root: of the store.
        order: where the test writes what is to happen.
    """

    def __init__(self, root: str, order: Path) -> None:
        super().__init__(root, on_call=self._look)
        self._order = order
        self._other: tuple[int, int] | None = None
        lock = threading.RLock()
        for name in COUNTED:
            setattr(self, name, _one_at_a_time(getattr(self, name), lock))

    def _look(self, number: int, _call: Call) -> None:
        if self._order.exists():
            later, action, *others = self._order.read_text().split()
            self._order.unlink()
            at = number - 1 + int(later)
            self._faults = {at: action} if not others else {}
            self._other = (at, int(others[0])) if others else None
        if self._other is not None and number == self._other[0]:
            os.kill(self._other[1], signal.SIGKILL)


def _one_at_a_time(call: Callable[..., Any], lock: threading.RLock) -> Callable[..., Any]:
    def locked(*args: Any, **options: Any) -> Any:
        with lock:
            return call(*args, **options)

    return locked


def begin() -> None:
    """In a service, before anything else runs."""
    for module in MODULES:
        if module in sys.orig_argv:
            install(ArmedOs(os.environ["REPUT_STORE"], Path(os.environ[DIRECTORY]) / module))
