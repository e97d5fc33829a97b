"""A network that misbehaves, between processes on loopback: https://github.com/Shopify/toxiproxy (one Go binary).

    with Toxiproxy() as toxiproxy:
        link = toxiproxy.link("builder", upstream="127.0.0.1:8082")   # callers dial link.address
        with link.toxic("limit_data", bytes=2000):                    # cut after 2,000 bytes, each connection
            ...
        with link.down():                                             # nobody listens
            ...

The binary is `toxiproxy-server` on the PATH or in .tools/bin (`server` of the Go module, renamed). It dies with the test
process.
"""

import contextlib
import ctypes
import http.client
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from tests.support.ports import free_port

START_SECONDS_MAX = 20.0
START_TRIES_MAX = 3  # another program may take the port before toxiproxy listens on it
ANSWER_SECONDS_MAX = 20.0
PR_SET_PDEATHSIG = 1
FAILED = "Server finished with error"  # and then its process hangs
TOOLS = pathlib.Path(__file__).parents[3] / ".tools" / "bin"


def binary() -> str | None:
    """The path of toxiproxy-server, None when it is missing."""
    return shutil.which("toxiproxy-server") or shutil.which("toxiproxy-server", path=str(TOOLS))


MISSING = "toxiproxy-server is missing (go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0, renamed)"


class NotStartedError(Exception):
    """toxiproxy does not answer; what it wrote."""


class Link:
    """One way from callers to a service.

    Attributes:
        address: what callers dial.
    """

    def __init__(self, toxiproxy: "Toxiproxy", name: str, address: str) -> None:
        self.address = address
        self._toxiproxy = toxiproxy
        self._name = name

    @contextlib.contextmanager
    def toxic(self, kind: str, stream: str = "downstream", **attributes: int) -> Iterator[None]:
        """This toxic inside the block; `downstream` is towards the callers."""
        toxic = {"name": kind, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes}
        self._toxiproxy.ask("POST", f"/proxies/{self._name}/toxics", toxic)
        try:
            yield
        finally:
            self._toxiproxy.ask("DELETE", f"/proxies/{self._name}/toxics/{kind}")

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens inside the block, and open connections are cut."""
        self._toxiproxy.ask("POST", f"/proxies/{self._name}", {"enabled": False})
        try:
            yield
        finally:
            self._toxiproxy.ask("POST", f"/proxies/{self._name}", {"enabled": True})


class Toxiproxy:
    """The proxy's process and its control port."""

    def __init__(self) -> None:
        path = binary()
        assert path is not None, MISSING
        for tries_left in reversed(range(START_TRIES_MAX)):
            try:
                self._start(path)
                return
            except NotStartedError:
                if not tries_left:
                    raise

    def _start(self, path: str) -> None:
        port = free_port()
        self._base = f"http://127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            [path, "-host", "127.0.0.1", "-port", str(port)],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, preexec_fn=_die_with_parent,  # noqa: PLW1509  # before any thread
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.ask("GET", "/version")
                return
            except (OSError, http.client.HTTPException) as error:  # nobody there yet, or another program
                self._log.seek(0)
                said = self._log.read().decode(errors="replace")
                ended = FAILED in said or self._process.poll() is not None
                if not ended and time.monotonic() < deadline:
                    time.sleep(0.02)  # a Go program: it tells nobody when its port is open
                    continue
                self.close()
                raise NotStartedError(said) from error

    def link(self, name: str, upstream: str) -> Link:
        """A way to a service, on a free port."""
        proxy = {"name": name, "listen": f"127.0.0.1:{free_port()}", "upstream": upstream, "enabled": True}
        return Link(self, name, self.ask("POST", "/proxies", proxy)["listen"])

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One call of its control interface."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith((b"{", b"[")) else text

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "Toxiproxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
