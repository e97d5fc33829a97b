"""The sections of docs/first-steps.md, done as they stand there, in a checkout and a home directory of their own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from deploy import build_kernels
from store.compiled import built
from tests.pipeline.spark_home import SHORT_LIFE
from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/first-steps.md"
BLOCK = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
DOCUMENTED_ADDRESS = "127.0.0.1:8081"
SERVES = "make run"
COMMAND_SECONDS_MAX = 240  # Spark's first session, pip's downloads
KEPT = ("PATH", "LANG", "JAVA_HOME", "PIP_", "SSL_", "REQUESTS_")
# What differs from run to run, and how wide it is.
VARIES = (
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"\b127\.0\.0\.1:\d+\b"), "<address>"),
    (
        re.compile(r'"(freshnessToken|commitLogOffset|logEndOffset|indexedUpToOffset|__CRC32#)": "?[^",\n]+"?'),
        r'"\1": <n>',
    ),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"[-─━]{2,}"), "--"),
)


@dataclass(frozen=True)
class Block:
    """Commands of the page, and what it shows as their output; None when it shows none."""

    script: str
    shown: str | None


def sections() -> dict[str, list[Block]]:
    """The blocks of each section."""
    found = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        title: [Block(script, shown or None) for script, shown in BLOCK.findall(text)]
        for title, text in zip(found[::2], found[1::2], strict=True)
    }


def normal(output: str) -> str:
    """An output without what differs from run to run."""
    for varies, name in VARIES:
        output = varies.sub(name, output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


class Newcomer:
    """Somebody with a checkout, an empty home directory and nothing else of ours.

    What `make setup` makes, the environment and the compiled kernels, is this checkout's: CI has made it in a fresh one just
    before.

    Args:
        root: an empty directory.

    Attributes:
        home: the home directory.
    """

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir(parents=True)
        self._checkout = root / "reput"
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.splitlines():
            target = self._checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        for kernel in map(built.binary_of, build_kernels.kernel_names()):
            if kernel.exists():
                shutil.copy2(kernel, self._checkout / kernel.relative_to(ROOT))
        environment = self._checkout / ".venv"
        environment.mkdir()
        for name in ("bin", "lib", "pyvenv.cfg"):
            (environment / name).symlink_to(ROOT / ".venv" / name)
        for stamp in (".setup-serve", ".setup-dev"):
            (environment / stamp).touch()
        self._port = free_port()
        # How this machine reaches its package registry is no part of the way in.
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        # Make takes the ports from there, and the command the gateway's address: no line of the page is changed for them.
        self._environ = kept | {
            "HOME": str(self.home),
            "GATEWAY_PORT": str(self._port),
            "CONSOLE_PORT": str(free_port()),
            "NAMESERVER_PORT": "0",
            "REMOTING_PORT": "0",
            "REPUT_ADDRESS": self.address,
            "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(64 << 20),
            "SPARK_SUBMIT_OPTS": SHORT_LIFE,
            "COLUMNS": "120",
        }

    @property
    def address(self) -> str:
        """Of the gateway that it starts."""
        return f"127.0.0.1:{self._port}"

    def do(self, script: str) -> subprocess.CompletedProcess[str]:
        """Commands of the page, in a shell."""
        return subprocess.run(
            ["bash", "-c", script.replace(DOCUMENTED_ADDRESS, self.address)],
            cwd=self._checkout,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )

    @contextlib.contextmanager
    def serving(self, script: str) -> Iterator[None]:
        """A command of the page that goes on until Ctrl-C; here once it has shown what it shows at its start."""
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {script}"],
                cwd=self._checkout, env=self._environ, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
            try:
                assert process.stdout is not None
                said = []
                for line in process.stdout:
                    said.append(line)
                    if "Ctrl-C" in line:
                        break
                log.seek(0)
                assert process.poll() is None, f"{''.join(said)}{log.read().decode()}"
                with grpc.insecure_channel(self.address) as channel:
                    grpc.channel_ready_future(channel).result(WAIT_SECONDS_MAX)
                yield
            finally:
                os.killpg(process.pid, signal.SIGINT)
                process.communicate(timeout=WAIT_SECONDS_MAX)
