"""Runs the real Apache RocketMQ on loopback, as the judge of our files.

Needs a JDK 17 and Maven; the jars come from Maven Central once and are kept in `.tools/rocketmq` of the project.
Every process started here is ended here, by pid.
"""

import atexit
import contextlib
import functools
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from benchmarks.sides import remoting
from tests.support.failures import watch_log
from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX, one_at_a_time, wait_until

JAVA_SOURCES = pathlib.Path(__file__).parent / "java"
TOOLS = pathlib.Path(__file__).resolve().parents[2] / ".tools" / "rocketmq"
VERSION = "5.5.0"  # as in pom.xml
OLDER = "5.3.3"  # most of the fixtures are its own
# The releases for tests in which files matter: the newest for each change, both for a release.
STORE_VERSIONS = (pytest.param(VERSION), pytest.param(OLDER, marks=pytest.mark.release))
JVM_FLAGS = [
    "-XX:MaxDirectMemorySize=1g",
    *[
        f"--add-{how}=java.base/{package}=ALL-UNNAMED"
        for how, package in [
            ("opens", "java.nio"),
            ("opens", "java.lang"),
            ("opens", "sun.nio.ch"),
            ("exports", "sun.nio.ch"),
            ("exports", "jdk.internal.ref"),
        ]
    ],
]


def why_unavailable() -> str | None:
    """The reason why RocketMQ cannot run here, or None when it can."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)} (JDK 17 and Maven)" if missing else None


def classpath(version: str = VERSION) -> str:
    """Of a release of RocketMQ and our drivers of it."""
    return build_classpath(JAVA_SOURCES, TOOLS / version, version)


def build_classpath(sources: pathlib.Path, home: pathlib.Path, version: str = "") -> str:
    """Resolve the jars of a pom.xml once, compile the drivers beside it that are new; return the class path.

    Args:
        sources: where pom.xml and the drivers lie.
        home: where what is made is kept.
        version: RocketMQ's, where it is not that of the pom.xml.
    """
    listing = home / "classpath"
    classes = home / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(home / "building"):
        if not listing.exists():
            fresh = home / "classpath.new"
            subprocess.run(
                [
                    *("mvn", "-q", "-B", "-f", str(sources / "pom.xml"), "dependency:build-classpath"),
                    *(f"-Dmdep.outputFile={fresh}", "-Dmdep.includeScope=runtime"),
                    *((f"-Drocketmq.version={version}",) if version else ()),
                ],
                check=True,
            )
            fresh.rename(listing)
        jars = listing.read_text().strip()
        drivers = [str(path) for path in sources.glob("*.java") if _is_newer(path, classes / f"{path.stem}.class")]
        if drivers:
            javac = ["javac", "-encoding", "UTF-8", "-nowarn", "-cp", jars, "-d", str(classes), *drivers]
            subprocess.run(javac, check=True)
    return f"{classes}:{jars}"


def _is_newer(source: pathlib.Path, made: pathlib.Path) -> bool:
    return not made.exists() or source.stat().st_mtime > made.stat().st_mtime


MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
# A JVM lives for seconds: no second compiler, and no threads of a large collector. Half the CPU of a start. Classes are not
# verified: a tenth. One log file: RocketMQ's own configuration has 700 lines, and opens seventy.
SHORT_LIFE = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    f"-Drmq.logback.configurationFile={JAVA_SOURCES / 'logback.xml'}",
)


class Clients:
    """One JVM for mqadmin and our drivers, which run one after the other (`java/Clients.java`); the first one starts it.

    It ends with this process, which is the end of its input.

    Args:
        version: of RocketMQ.
        flags: further flags of the JVM.
    """

    def __init__(self, version: str, *flags: str) -> None:
        self._version = version
        self._flags = flags
        self._home = tempfile.TemporaryDirectory(prefix="rocketmq-clients-")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, main: str, *args: str) -> str:
        """What a program prints, also where it fails.

        Raises:
            RuntimeError: it threw something, ended with another status than 0, or did not end in WAIT_SECONDS_MAX.
        """
        with self._lock:
            process = self._running()
            hang = threading.Timer(WAIT_SECONDS_MAX, process.kill)
            hang.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("\t".join((main, *args)) + "\n")
                process.stdin.flush()
                said: list[str] = []
                for line in process.stdout:
                    if line.startswith("=== "):
                        break
                    said.append(line)
                else:
                    line = f"ended within {WAIT_SECONDS_MAX:g} s"
            finally:
                hang.cancel()
        text = "".join(said).removesuffix("\n")
        if line != "=== done\n":
            raise RuntimeError(f"{main} {' '.join(args)}: {line}\n{text[-3000:]}")
        return text

    def end(self) -> None:
        """End the JVM."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            home = pathlib.Path(self._home.name)
            watch_log(home)
            flags = (*SHORT_LIFE, *JVM_FLAGS, "-Xmx256m", "-Dfile.encoding=UTF-8", "-Djava.security.manager=allow")
            with open(home / "stderr.log", "ab") as log:
                self._process = subprocess.Popen(
                    ["java", f"-Duser.home={home}", *flags, *self._flags, "-cp", classpath(self._version), "Clients"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=home,  # some verbs leave files where they run
                    encoding="utf-8",
                )
        return self._process


@functools.cache
def clients(version: str) -> Clients:
    """Those of a version that all tests of this process share."""
    return Clients(version)


def broker_port() -> int:
    """A port whose neighbours -2 and +1 are free too: the broker's VIP and replication ports."""
    return free_port(-2, 1)


class RealRocketMQ:
    """A broker on one store root, and its name server.

    Args:
        store: the store root that the broker opens.
        work: a directory for logs and configuration.
        version: RocketMQ's.
        settings: further lines of broker.conf.

    Attributes:
        broker_heap: of the broker's JVM.
        short_life: flags of all its JVMs.
        idle: lines of broker.conf unless `settings` has others.
        shares_names: whether it registers at the name server of this process (`name_server`), not at one of its own.
    """

    shares_names = True

    broker_heap = "512m"
    short_life: ClassVar[Sequence[str]] = SHORT_LIFE
    # A flush compares the 38 MiB of the timer wheel, in almost a second of CPU: each second, it is most of what an idle
    # broker spends. A stop flushes, too. A thread of 5.5.0 spins until its first flush of metrics, for ten seconds by default
    # (`TransactionMetricsFlushService`): half of what a short-lived broker spent. A broker refuses what has waited for
    # 200 ms, or for 1 s of a write: on a busy machine any request may.
    idle: ClassVar[Mapping[str, object]] = MappingProxyType(
        {
            "timerFlushIntervalMs": 60_000,
            "transactionMetricFlushInterval": 500,
            "osPageCacheBusyTimeOutMills": 60_000,
            **{
                f"waitTimeMillsIn{queue}Queue": 60_000
                for queue in ("Send", "Pull", "Heartbeat", "Transaction", "AdminBroker")
            },
        }
    )

    def __init__(self, store: pathlib.Path, work: pathlib.Path, *, version: str = VERSION, **settings: object) -> None:
        self.store = store
        self.work = work
        self.version = version
        self.settings = settings
        self.broker_port = broker_port()
        self.namesrv_port = broker_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def namesrv(self) -> str:
        """Address of the name server."""
        return f"127.0.0.1:{self.namesrv_port}"

    def classpath(self) -> str:
        """What the processes are started with."""
        return classpath(self.version)

    def is_registered(self) -> bool:
        """Whether the name server knows the broker."""
        return remoting.has_broker(self.namesrv_port, "broker-a")

    def _launch(self, name: str, port: int, main: str, *args: str, heap: str, jvm_flags: Sequence[str] = ()) -> None:
        home = self.work / "home"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        memory = (f"-Xms{heap}", f"-Xmx{heap}")
        flags = (*memory, *jvm_flags, f"-Duser.home={self.work}", *self.short_life, *JVM_FLAGS)
        command = ["java", *flags, "-cp", self.classpath(), main, *args]
        watch_log(self.work)
        with open(self.work / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(home)
            )
        self._processes.append(process)

        def is_open() -> bool:
            assert process.poll() is None, f"it ended with {process.returncode}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_until(is_open, "it opens its port", poll_seconds=0.1)
        except AssertionError as error:
            said = (self.work / f"{name}.log").read_text()[-3000:]
            raise RuntimeError(f"{name} did not open port {port}: {error}\n{said}") from error

    @staticmethod
    def _environment(home: pathlib.Path) -> dict[str, str]:
        return {**os.environ, "ROCKETMQ_HOME": str(home)}

    def start(self) -> None:
        """Start the broker, and the name server that it needs; return once the broker is registered."""
        self.work.mkdir(parents=True, exist_ok=True)
        if self.shares_names:
            self.namesrv_port = name_server()
        else:
            self.start_name_server()
        self.start_broker()

    def start_name_server(self) -> None:
        """Start the name server; return once its port is open."""
        self.work.mkdir(parents=True, exist_ok=True)
        namesrv_conf = self.work / "namesrv.conf"
        namesrv_conf.write_text(f"listenPort={self.namesrv_port}\n")
        self._launch(
            "namesrv",
            self.namesrv_port,
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            "-c",
            str(namesrv_conf),
            heap="128m",
        )

    def start_broker(self) -> None:
        """Start the broker; return once the name server knows it."""
        lines = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "listenPort": self.broker_port,
            "haListenPort": self.broker_port + 1,
            "autoCreateTopicEnable": "true",
            "storePathRootDir": self.store,
            **self.idle,
            **self.settings,
        }
        broker_conf = self.work / "broker.conf"
        broker_conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self._launch("broker", self.broker_port, main, "-c", str(broker_conf), heap=self.broker_heap)
        wait_until(self.is_registered, "the broker registers with the name server", poll_seconds=0.1)

    def mqadmin(self, *args: str) -> str:
        """What the real mqadmin prints for a command."""
        return self.clients().run(MQADMIN, *args, "-n", self.namesrv)

    def clients(self) -> Clients:
        """Where mqadmin and the drivers run."""
        return clients(self.version)

    def send(self, topic: str, prefix: str, count: int) -> list[tuple[str, str, int, int]]:
        """Send messages with a real producer; receipts (unique_key, offset_msg_id, queue_id, queue_offset)."""
        out = self.clients().run("SendMessages", self.namesrv, topic, prefix, str(count))
        rows = [line.split("\t") for line in out.splitlines() if line.count("\t") == 3]
        return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]

    def consume(self, topic: str, group: str, kind: str, expression: str, count: int) -> list[str]:
        """What a real consumer of a new group gets that filters by "sql" or by "tag": `KEYS BODY`, at least `count`."""
        args = (group, topic, kind, expression, str(count), "3000")
        out = self.clients().run("ConsumeMessages", self.namesrv, *args)
        return [line.removeprefix("> ") for line in out.splitlines() if line.startswith("> ")]

    def pop(self, topic: str, group: str, tags: str, count: int, failing_key: str) -> list[list[str]]:
        """What a real push consumer in POP mode gets: keys, body, how often it came before, and its handle; in any order.

        Its first try of the message with the failing key fails.
        """
        out = self.clients().run("PopMessages", self.namesrv, group, topic, tags, str(count), failing_key)
        rows = [line.removeprefix("> ").split("|") for line in out.splitlines() if line.startswith("> ")]
        return sorted(rows)

    def stop(self) -> None:
        """End what was started here cleanly, the last one first."""
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@functools.cache
def name_server() -> int:
    """The port of a name server for all brokers of this process, one after the other; it ends with the process."""
    directory = tempfile.TemporaryDirectory(prefix="rocketmq-names-")
    names = RealRocketMQ(pathlib.Path(directory.name) / "none", pathlib.Path(directory.name))
    names.start_name_server()
    atexit.register(directory.cleanup)
    atexit.register(names.stop)
    return names.namesrv_port


@contextlib.contextmanager
def real_rocketmq(store: pathlib.Path, work: pathlib.Path, **settings: Any) -> Iterator[RealRocketMQ]:
    """A running RocketMQ on `store`, stopped at the end; see `RealRocketMQ`."""
    broker = RealRocketMQ(store, work, **settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
