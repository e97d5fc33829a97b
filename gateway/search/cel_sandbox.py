"""The sandbox: a few processes that evaluate CEL for all searches of a gateway, started when first needed.

A process is lent for one batch of messages, so a long search does not keep it from other searches. The process caches
compiled programs. When an expression ends its process, its caller gets INVALID_ARGUMENT with the expression; other callers
get another process for their next batch:

    how the process ended                               answer to the caller
    SIGPROF                                             did not end within EVALUATION_CPU_SECONDS for one message
    SIGABRT, EXIT_NO_MEMORY                             needs more than MEMORY_BYTES_MAX
    anything else                                       broke the evaluator
    SIGXCPU                                             no error: the process was old, another one continues
    killed here, call cancelled or time over            no error: the results so far
    killed here, no value for EVALUATION_SECONDS_MAX    RESOURCE_BUSY: it got no processor time, else SIGPROF had come

`CelProcess` is the handle for one process that evaluates CEL (cel_worker.py): it starts it, sends requests, and kills it by
its id.
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gateway.ports.deadline import Cancellation, Deadline
from gateway.search.cel_frames import LINE_BYTES_MAX, encode_request
from gateway.search.cel_worker import EVALUATION_CPU_SECONDS, EXIT_NO_MEMORY, MEMORY_BYTES_MAX
from gateway.search.message_view import MessageView
from store.errors import InvalidArgumentError, ResourceBusyError, ServiceUnavailableError

SERVICE = "cel"
MODULE = "gateway.search.cel_worker"
# A start takes about 0.3 s; on a machine that is busy with a recovery many times that.
START_SECONDS_MAX = 30.0
_CHUNK_BYTES = 64 * 1024


class CelProcess:
    """Starts the process and waits until it is ready.

    Raises:
        ServiceUnavailableError: it did not start; it wrote the reason to the gateway's stderr.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        # Reput's settings may hold secrets, so the process does not get them.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        with theirs:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-m", MODULE], stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment
            )
        self._buffer = b""
        self._kill_lock = threading.Lock()
        self.was_killed = False
        self._socket.settimeout(START_SECONDS_MAX)
        try:
            line = self.read_line(START_SECONDS_MAX)
        except TimeoutError:
            line = None
        if line != {"ready": True}:
            code = self.close()
            raise ServiceUnavailableError(
                f"The process that evaluates CEL did not start (exit code {code}); the gateway's log has the cause: "
                "search without `cel` until it is fixed.",
                service=SERVICE,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, expression: str, messages: Sequence[tuple[MessageView, bytes]], seconds: float) -> None:
        """Send a request; `read_line` reads the answer.

        Raises:
            TimeoutError: the process did not read the request in `seconds`.
            OSError: the process has ended.
        """
        self._socket.settimeout(seconds)
        self._socket.sendall(encode_request(expression, messages))

    def read_line(self, seconds: float) -> Any:
        """The next line of the answer, decoded; None when the process has ended.

        Raises:
            TimeoutError: no line came in `seconds`.
        """
        self._socket.settimeout(seconds)
        while b"\n" not in self._buffer:
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except ConnectionResetError:
                chunk = b""
            if not chunk or len(self._buffer) > LINE_BYTES_MAX:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def kill(self) -> None:
        """Kill the process; from any thread, also while another thread waits for an answer."""
        with self._kill_lock:
            self.was_killed = True
            if self._process.poll() is None:  # not reaped yet, so no other process has this id
                os.kill(self._process.pid, signal.SIGKILL)

    def close(self) -> int:
        """End the process and free its resources; returns its exit code, negative for a signal."""
        self._socket.close()
        try:
            return self._process.wait(0 if self.was_killed else 0.2)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


# Each takes about 40 MiB when idle, at most MEMORY_BYTES_MAX, and one processor at a priority below the services'.
PROCESS_COUNT_MAX = 4
# Batches are short, so a longer wait means that all processes evaluate slow expressions.
WAIT_SECONDS_MAX = 5.0
# On a very busy machine, a process of low priority may take this long to get half a second of processor time.
EVALUATION_SECONDS_MAX = 10.0
# When the time is over, a quick expression may finish its batch in this time, also on a busy machine, where it gets little
# processor time. Killing its process would cost the next page a start, which takes longer.
LAST_VALUES_SECONDS = 1.0
EXPRESSION_CHARACTERS_MAX = 4_096
_QUOTED_CHARACTERS_MAX = 120
_NO_MEMORY = (-signal.SIGABRT, EXIT_NO_MEMORY)


class CelSandbox:
    """Lends processes; thread-safe.

    Args:
        process_count_max: the most processes at the same time.
        start: starts a process.
    """

    def __init__(
        self, process_count_max: int = PROCESS_COUNT_MAX, start: Callable[[], CelProcess] = CelProcess
    ) -> None:
        self._count_max = process_count_max
        self._start = start
        self._condition = threading.Condition()
        self._idle: list[CelProcess] = []
        self._lent: set[CelProcess] = set()
        self._lent_count = 0
        self._is_closed = False

    def lend(self, cancellation: Cancellation, deadline: Deadline) -> CelProcess:
        """A process; the caller gives it back to `take_back`.

        Raises:
            ResourceBusyError: all processes stayed lent while this call waited.
            ServiceUnavailableError: no process starts, the call was cancelled, or the gateway stops.
        """

        def is_over() -> bool:
            return self._is_closed or cancellation.is_set or self._lent_count < self._count_max

        with cancellation.ending(self._wake), self._condition:
            self._condition.wait_for(is_over, min(WAIT_SECONDS_MAX, deadline.remaining_seconds()))
            if self._is_closed or cancellation.is_set:
                raise ServiceUnavailableError(
                    "The search was cancelled, or the gateway is stopping.", service="gateway"
                )
            if self._lent_count >= self._count_max:
                raise ResourceBusyError(
                    f"All {self._count_max} processes that evaluate `cel` are busy: try again.",
                    countMax=self._count_max,
                )
            self._lent_count += 1
            process = self._idle.pop() if self._idle else None
        try:
            if process is not None and not process.is_alive:
                process.close()
                process = None
            process = process or self._start()
        except BaseException:
            self._returned()
            raise
        with self._condition:
            self._lent.add(process)
        return process

    def take_back(self, process: CelProcess, *, usable: bool) -> None:
        """Give a process back; not `usable` when it has ended or may still evaluate something."""
        with self._condition:
            self._lent.discard(process)
            if usable and not self._is_closed:
                self._idle.append(process)
                process = None  # type: ignore[assignment]
        if process is not None:
            process.close()
        self._returned()

    def close(self) -> None:
        """End all processes; no new one starts."""
        with self._condition:
            self._is_closed = True
            idle, self._idle = self._idle, []
            lent = list(self._lent)
            self._condition.notify_all()
        for process in lent:
            process.kill()
        for process in idle:
            process.kill()
            process.close()

    def _returned(self) -> None:
        with self._condition:
            self._lent_count -= 1
            self._condition.notify()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


class CelEvaluator:
    """The checked expression of one call.

    Args:
        sandbox: evaluates it.
        expression: CEL over `message` (cel_program.py).
        time_is_over: whether to return without the remaining messages.
        cancellation: of the call.
        deadline: of the call.

    Attributes:
        needs_body: whether the expression reads bodies.

    Raises:
        InvalidArgumentError: it is too long, is not valid CEL, uses an unknown name, does not end or needs too much memory.
    """

    def __init__(
        self,
        sandbox: CelSandbox,
        expression: str,
        *,
        time_is_over: Callable[[], bool],
        cancellation: Cancellation,
        deadline: Deadline,
    ) -> None:
        if len(expression) > EXPRESSION_CHARACTERS_MAX:
            raise InvalidArgumentError(
                f"cel has {len(expression)} characters: at most {EXPRESSION_CHARACTERS_MAX}.",
                field="cel",
                characterCount=len(expression),
            )
        self.needs_body = "body" in expression
        self._sandbox = sandbox
        self._expression = expression
        self._time_is_over = time_is_over
        self._cancellation = cancellation
        self._deadline = deadline
        self.evaluate([])

    def evaluate(self, messages: list[tuple[MessageView, bytes]]) -> list[bool | str]:
        """A value for each message, or the reason why there is none.

        When the time is over: the values so far, at least one. When cancelled: an empty list.

        Raises:
            InvalidArgumentError: as the class says, for one of these messages.
        """
        while True:
            if self._cancellation.is_set:
                return []
            process = self._sandbox.lend(self._cancellation, self._deadline)
            values: list[bool | str] = []
            usable = False
            try:
                with self._cancellation.ending(process.kill):
                    usable = self._ask(process, messages, values)
            except InvalidArgumentError:  # an answer of the process, which is ready for the next request
                usable = True
                raise
            finally:
                self._sandbox.take_back(process, usable=usable and not process.was_killed)
            if usable or self._cancellation.is_set or len(values) == len(messages) > 0:
                return values
            if values and self._time_is_over():
                return values
            code = process.close()
            if process.was_killed:
                raise ResourceBusyError(
                    f"cel {self._quoted()} was not evaluated within {EVALUATION_SECONDS_MAX:g} s, because the process that "
                    "evaluates it got too little processor time: try again.",
                    field="cel",
                )
            if code != -signal.SIGXCPU:
                raise self._ended(code, messages[len(values)][0] if messages else None)

    def _ask(
        self, process: CelProcess, messages: Sequence[tuple[MessageView, bytes]], values: list[bool | str]
    ) -> bool:
        """Fill the values; returns whether the process is ready for the next request."""
        try:
            process.ask(self._expression, messages, self._seconds())
            if self._line(process) is not True:  # the line about the expression itself
                return False
            end_seconds = math.inf
            while len(values) < len(messages):
                if values and self._time_is_over():
                    grace_seconds = min(LAST_VALUES_SECONDS, self._deadline.remaining_seconds() / 2)
                    end_seconds = min(end_seconds, self._deadline.clock() + grace_seconds)
                if self._deadline.clock() > end_seconds:
                    process.kill()
                    return False
                line = self._line(process)
                if line is None:
                    return False
                values.append(line if isinstance(line, bool) else str(line["error"]))
        except TimeoutError:
            process.kill()
            if not values:
                self._deadline.remaining_seconds()
            return False
        except OSError:  # the process has ended; its exit code gives the reason
            return False
        return True

    def _line(self, process: CelProcess) -> Any:
        line = process.read_line(self._seconds())
        if isinstance(line, dict) and "fault" in line:
            raise self._fault(line)
        return line

    def _seconds(self) -> float:
        return min(EVALUATION_SECONDS_MAX, self._deadline.remaining_seconds())

    def _fault(self, line: dict[str, Any]) -> InvalidArgumentError:
        where = f" (line {line['line']}, column {line['column']})" if line["line"] else ""
        position = {"line": line["line"], "column": line["column"]} if line["line"] else {}
        return InvalidArgumentError(f"cel {self._quoted()}{where}: {line['fault']}.", field="cel", **position)

    def _ended(self, code: int, view: MessageView | None) -> InvalidArgumentError:
        if code in _NO_MEMORY:
            what = f"needs more than {MEMORY_BYTES_MAX >> 20} MiB of memory"
        elif code in (-signal.SIGPROF, -signal.SIGKILL):
            what = f"does not end within {EVALUATION_CPU_SECONDS} s"
        else:
            what = f"broke its evaluator, which ended with {code}"
        where = f" for the message at byte {view.commit_log_offset}" if view else ""
        return InvalidArgumentError(f"cel {self._quoted()} {what}{where}: simplify it.", field="cel", exitCode=code)

    def _quoted(self) -> str:
        text = self._expression
        return repr(text if len(text) <= _QUOTED_CHARACTERS_MAX else text[:_QUOTED_CHARACTERS_MAX] + "...")
