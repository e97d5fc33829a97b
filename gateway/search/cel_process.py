"""The gateway's handle for one process that evaluates CEL (cel_worker.py): starts it, sends requests, kills it by its id."""

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
