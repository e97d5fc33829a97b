"""A real etcd on loopback for tests; ended with the test process."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

from tests.support.ports import free_port
from tests.support.waiting import wait_until

ETCD = os.environ.get("ETCD") or shutil.which("etcd")
MISSING = "needs etcd (Debian's package etcd-server)"
STOP_SECONDS_MAX = 15.0


class Etcd:
    """One member with its own directory; it can be stopped, started again, and lose its data.

    Args:
        directory: for its data and log.
        flags: more of etcd's own.
        scheme: http or https.
    """

    def __init__(self, directory: pathlib.Path, flags: Sequence[str] = (), scheme: str = "http") -> None:
        self._directory = directory
        self._flags = flags
        self._scheme = scheme
        self._port = free_port(1)
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        clients, peers = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self._port + 1}"
        command = [
            "setpriv", "--pdeathsig", "KILL", str(ETCD), "--data-dir", str(self._directory / "data"),
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
            "--unsafe-no-fsync", *self._flags,
        ]  # fmt: skip
        with open(self._directory / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._listens, f"etcd: {self._directory / 'log'}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None

    def lose_data(self) -> None:
        """As when its disk was replaced: it starts again and is empty."""
        self.stop()
        shutil.rmtree(self._directory / "data")
        self.start()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False


@contextlib.contextmanager
def running_etcd(directory: pathlib.Path, flags: Sequence[str] = (), scheme: str = "http") -> Iterator[Etcd]:
    """An etcd that is gone when the block ends."""
    etcd = Etcd(directory, flags, scheme)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()
