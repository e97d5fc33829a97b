"""Runs tests in several processes: `-p tests.support.workers --workers 5`, beside `-p tests.support.scheduling`.

pytest collects once, then this process forks. A child has all that was imported and collected. It runs the tests that it is
given, and sends its reports, which this process shows and counts as its own (ADR 0172).

A child asks for its next file when the fixtures of the last test of one end, and no earlier. Which of them stay depends on the
next test, but a test may take minutes, and what was given to a process cannot go to another.

A child that dies is named with the test that it ran, and another one goes on with its tests. What a child prints outside of its
tests goes nowhere. Code that must run at the end of a process runs in each child, since a child ends as pytest does.
"""

import contextlib
import functools
import gc
import os
import selectors
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scheduling import Files, scope_of

# The name of a child, such as `w0`, in its environment.
WORKER = "TEST_WORKER"
# How long a child that was told to end may take for its fixtures, and for what runs at its end.
END_SECONDS_MAX = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many processes."""
    parser.addoption("--workers", type=int, default=0, help="run tests in so many processes; 0: in this one")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """What is collected lives until the end: the garbage collector does not look at it while it grows."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor later: and children share its memory as long as nobody writes to it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in children; None where pytest shall do it, or say why nothing runs."""
    option = session.config.option
    is_refused = session.testsfailed and not option.continue_on_collection_errors
    if option.workers < 1 or option.collectonly or is_refused or not session.items:
        return None
    run = Run(session, option.workers)
    return run.in_child() if run.start() else run.to_the_end()


class Worker:
    """A child as the process that forked it sees it.

    Args:
        name: such as `w0`.
        pid: its process.
        connection: brings its reports, and takes tests.

    Attributes:
        scope: the file that it was given last.
        is_ending: it was told that there are no more tests.
        pending: the tests that it has not done, by their places in the collection.
        node: what pytest shows of it in a report.
    """

    def __init__(self, name: str, pid: int, connection: "Connection[Any, Any]") -> None:
        self.name = name
        self.pid = pid
        self.connection = connection
        self.end = os.pidfd_open(pid)  # its services may hold its end of the connection open when it is dead
        self.scope = ""
        self.is_ending = False
        self.pending: deque[int] = deque()
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=f"[{name}]")

    def close(self) -> None:
        """Close what this process has of it."""
        self.connection.close()
        os.close(self.end)


class WorkerBrokenError(Exception):
    """pytest itself failed in a child."""


class Run:
    """All tests of a session in children; after `start` each of them continues as a `Child`.

    Args:
        session: with its tests.
        count: of the children.
    """

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._files = Files([scope_of(item) for item in session.items], count)
        self._count = count
        self._forked_count = 0
        self._workers: dict[int, Worker] = {}  # by process
        self._selector = selectors.DefaultSelector()
        self._child: Child | None = None

    def start(self) -> bool:
        """Fork; whether this process is a child."""
        return any(self._fork() for _ in range(self._count))

    def in_child(self) -> bool:
        """Run what a child is given; True."""
        assert self._child is not None
        self._child.run()
        return True

    def to_the_end(self) -> bool:
        """Hand out the tests and take the reports, until all children have ended; True in the one that forks.

        Raises:
            WorkerBrokenError, and what a session raises that stops early.
        """
        try:
            while self._workers:
                are_ending = all(worker.is_ending for worker in self._workers.values())
                events = self._selector.select(END_SECONDS_MAX if are_ending else None)
                if not events:
                    names = ", ".join(worker.name for worker in self._workers.values())
                    print(f"\nkilled {names}: did not end within {END_SECONDS_MAX:.0f} s", flush=True)
                    self._signal(signal.SIGKILL)
                    return True
                for key, _ in events:
                    worker: Worker = key.data
                    if worker.pid not in self._workers:
                        continue
                    if key.fileobj == worker.end:
                        while self._take(worker):
                            pass
                        if self._bury(worker):
                            return self.in_child()
                    elif not self._take(worker):
                        self._selector.unregister(worker.connection)
                    if self._session.shouldfail:
                        raise self._session.Failed(self._session.shouldfail)
                    if self._session.shouldstop:
                        raise self._session.Interrupted(self._session.shouldstop)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):  # which the terminal has sent to all of them
                self._signal(signal.SIGINT)
            raise
        finally:
            if self._child is None:
                self._end()
        return True

    def _fork(self) -> bool:
        """One child more, with its first tests; whether this process is the child."""
        name = f"w{self._forked_count}"
        self._forked_count += 1
        here, there = Pipe()
        config = self._session.config
        base = config._tmp_path_factory.getbasetemp() / name  # type: ignore[attr-defined]
        for stream in (config.get_terminal_writer(), sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            here.close()
            for other in self._workers.values():
                other.close()
            self._workers.clear()
            self._selector.close()
            self._child = Child(self._session, name, there, base)
            return True
        there.close()
        worker = self._workers[pid] = Worker(name, pid, here)
        self._selector.register(here, selectors.EVENT_READ, worker)
        self._selector.register(worker.end, selectors.EVENT_READ, worker)
        return False

    def _give(self, worker: Worker) -> None:
        """The next file for a child that asks for one; none: it ends."""
        running = [other.scope for other in self._workers.values() if other is not worker and other.pending]
        worker.scope, indices = self._files.take(running)
        worker.pending += indices
        worker.is_ending = not indices
        with contextlib.suppress(OSError):  # it died: `_bury` sees to it
            worker.connection.send(indices)

    def _take(self, worker: Worker) -> bool:
        """One message of a child; False when it sends no more."""
        try:
            if not worker.connection.poll():
                return False
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            return False
        config = self._session.config
        if kind == "report":
            report = config.hook.pytest_report_from_serializable(config=config, data=value)
            report.node = worker.node
            config.hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            config.hook.pytest_warning_recorded.call_historic(kwargs=_warned(*value))
        elif kind == "broken":
            raise WorkerBrokenError(f"in {worker.name}:\n{value}")
        elif kind == "more":
            self._give(worker)
        else:
            self._done(worker.pending.popleft())
        return True

    def _done(self, index: int) -> None:
        item = self._session.items[index]
        self._session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _bury(self, worker: Worker) -> bool:
        """A child has ended; one that had tests left is replaced. Returns whether this process is the new child."""
        del self._workers[worker.pid]
        _, status = os.waitpid(worker.pid, 0)
        self._selector.unregister(worker.end)
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.connection)
        worker.close()
        if not worker.pending:
            return False
        index = worker.pending.popleft()
        item = self._session.items[index]
        text = f"the process {worker.name} ended with {os.waitstatus_to_exitcode(status)} while it ran this test"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        report.node = worker.node  # type: ignore[attr-defined]
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._done(index)
        self._files.put_back([(scope_of(self._session.items[each]), each) for each in worker.pending])
        return self._fork()

    def _signal(self, number: int) -> None:
        for worker in self._workers.values():
            signal.pidfd_send_signal(worker.end, number)

    def _end(self) -> None:
        """Wait for those that are left, without tests; kill what does not end."""
        for worker in self._workers.values():
            worker.connection.close()
        for worker in self._workers.values():
            with selectors.DefaultSelector() as ends:
                ends.register(worker.end, selectors.EVENT_READ)
                if not ends.select(END_SECONDS_MAX):
                    signal.pidfd_send_signal(worker.end, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            os.close(worker.end)
        self._workers.clear()
        self._selector.close()


class Later:
    """The next test, asked for when it is looked at: false when there is none.

    Args:
        ask: returns it.
    """

    def __init__(self, ask: Callable[[], pytest.Item | None]) -> None:
        self._ask = ask

    @functools.cached_property
    def item(self) -> pytest.Item | None:
        """The test."""
        return self._ask()

    def __bool__(self) -> bool:
        return self.item is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.item, name)


class Child:
    """The session in a forked process, and the plugin that sends its reports.

    Args:
        session: as it was collected.
        name: of this process.
        connection: to the one that forked it.
        base: its directory for temporary files.
    """

    def __init__(self, session: pytest.Session, name: str, connection: "Connection[Any, Any]", base: os.PathLike[str]):
        self._session = session
        self._config = config = session.config
        self._connection = connection
        self._given: deque[int] = deque()
        os.environ[WORKER] = name
        config.workerinput = {"workerid": name}  # type: ignore[attr-defined] # pytest: this process keeps no record of the run
        os.mkdir(base, 0o700)
        factory = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory._given_basetemp = base
        factory._exit_stack = contextlib.ExitStack()  # the other process removes what is old
        self._be_silent()
        config.pluginmanager.register(self)

    def _be_silent(self) -> None:
        """Descriptors, captured output and the report of a process of its own: none of it is the other process's."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(nothing, descriptor)
        os.close(nothing)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        self._config.get_terminal_writer()._file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 # until the end

    def run(self) -> None:
        """Run the tests that come, until no more do."""
        item = self._next()
        while item is not None:
            following = Later(self._next)
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._send("done", None)
            if self._session.shouldfail or self._session.shouldstop:
                return
            item = following.item

    def _next(self) -> pytest.Item | None:
        if not self._given:
            self._send("more", None)
            with contextlib.suppress(EOFError, OSError):
                self._given += self._connection.recv()
        return self._session.items[self._given.popleft()] if self._given else None

    def _send(self, kind: str, value: object) -> None:
        with contextlib.suppress(OSError):  # the other process has ended, and this one ends when it asks for tests
            self._connection.send((kind, value))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("report", data)

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        """Send a warning, as text: its class may be one that cannot be sent."""
        shown = (str(warning_message.message), warning_message.category.__name__)
        self._send("warning", (*shown, warning_message.filename, warning_message.lineno, when, nodeid))

    def pytest_internalerror(self, excrepr: object) -> None:
        """Send why pytest itself failed."""
        self._send("broken", str(excrepr))


def _warned(text: str, category: str, filename: str, lineno: int, when: str, nodeid: str) -> dict[str, Any]:
    """The arguments of `pytest_warning_recorded` for a warning of a child."""
    kind = type(category, (Warning,), {})
    message = warnings.WarningMessage(kind(text), kind, filename, lineno)
    return {"warning_message": message, "when": when, "nodeid": nodeid, "location": None}
