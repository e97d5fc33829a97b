"""Member: one process of a cluster that is started again when it ends."""

import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from deploy.processes import exit_code_of, say

# A process that ends at once again and again is started after growing pauses.
PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 5.0
# A process that has run for so long did not fail at its start.
SETTLED_SECONDS = 10.0
USAGE_EXIT_CODE = 2
LOG_LINE_COUNT_SHOWN = 5


class MemberFailedError(Exception):
    """A process refuses its settings: another start would not help. `exit_code` is the one for the whole cluster."""

    exit_code = USAGE_EXIT_CODE


class Member:
    """A process; its output goes to the end of a file.

    Args:
        name: in messages.
        command: the command line.
        environ: its environment.
        log_path: where its output goes.
        clock: seconds, rising.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log_path: pathlib.Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._command = command
        self._environ = environ
        self._log_path = log_path
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at: float | None = None  # when an ended process is started again
        self._pause_seconds = PAUSE_SECONDS_FIRST

    @property
    def pid(self) -> int:
        """Of the process, or of the one before."""
        assert self._process is not None, "it was started"
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._started_at, self._start_at = self._clock(), None
        with open(self._log_path, "ab") as log:
            # A session of its own: Ctrl-C reaches the starter only, which stops all in order.
            self._process = subprocess.Popen(
                self._command,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep_running(self) -> None:
        """Start the process again if it has ended and its pause is over.

        Raises:
            MemberFailedError: it has ended because of its settings.
        """
        if self._process is None or self._process.poll() is None:
            return
        now = self._clock()
        if self._start_at is None:
            exit_code = exit_code_of(self._process.returncode)
            say(f"{self.name} ended with exit code {exit_code} and is started again; its log is {self._log_path}")
            if exit_code == USAGE_EXIT_CODE:
                lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
                raise MemberFailedError("\n".join([f"{self.name} cannot start:", *lines[-LOG_LINE_COUNT_SHOWN:]]))
            if now - self._started_at >= SETTLED_SECONDS:
                self._pause_seconds = PAUSE_SECONDS_FIRST
            self._start_at = now + self._pause_seconds
            self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)
        if now >= self._start_at:
            self.start()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self.is_running():
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self, seconds: float) -> None:
        """Wait for the end; after so many seconds it is killed."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
