"""One process that evaluates CEL (cel_worker.py), as its gateway holds it: started, asked, and killed by its id."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from gateway.search.cel_frames import LINE_BYTES_MAX, encode_request
from gateway.search.message_view import MessageView
from store.errors import ServiceUnavailableError

SERVICE = "cel"
MODULE = "gateway.search.cel_worker"
# A start takes about 0.3 s; on a machine that is busy with a recovery many times that.
START_SECONDS_MAX = 30.0
_CHUNK_BYTES = 64 * 1024


class CelProcess:
    """Starts it and waits until it can be asked.

    Raises:
        ServiceUnavailableError: it did not start; its stderr is the gateway's.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        # Settings may hold secrets, and no expression needs one.
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
                f"The process that evaluates CEL did not start (it ended with {code}); the log of the gateway says more: "
                "search without `cel` meanwhile.",
                service=SERVICE,
            )

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def ask(self, expression: str, messages: Sequence[tuple[MessageView, bytes]], seconds: float) -> None:
        """Send a request whose answer `read_line` reads.

        Raises:
            TimeoutError: it did not take it in that time.
            OSError: it has ended.
        """
        self._socket.settimeout(seconds)
        self._socket.sendall(encode_request(expression, messages))

    def read_line(self, seconds: float) -> Any:
        """The next line of its answer; None when it has ended.

        Raises:
            TimeoutError: there was none in that time.
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
        """End it now; from any thread, also while another asks it."""
        with self._kill_lock:
            self.was_killed = True
            if self._process.poll() is None:  # not reaped: the id is still its own
                os.kill(self._process.pid, signal.SIGKILL)

    def close(self) -> int:
        """End it and give back what it held; its exit code, negative for a signal."""
        self._socket.close()
        try:
            return self._process.wait(0 if self.was_killed else 0.2)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()
