"""Runs the real Apache RocketMQ on loopback, as the judge of our files.

Needs a JDK 17 and Maven; the jars come from Maven Central once and are kept in `.tools/rocketmq` of the project.
Every process started here is ended here, by pid.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import pytest

from benchmarks.sides import remoting
from tests.support.failures import watch_log
from tests.support.ports import free_port
from tests.support.waiting import one_at_a_time, wait_until

JAVA_SOURCES = pathlib.Path(__file__).parent / "java"
TOOLS = pathlib.Path(__file__).resolve().parents[2] / ".tools" / "rocketmq"
VERSION = "5.3.3"  # as in pom.xml
# The releases whose stores are handed over: the newest for each change, that of the fixtures for a release.
NEWEST = "5.5.0"
STORE_VERSIONS = (pytest.param(NEWEST), pytest.param(VERSION, marks=pytest.mark.release))
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
    if version == VERSION:
        return build_classpath(JAVA_SOURCES, TOOLS)
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


def broker_port() -> int:
    """A port whose neighbours -2 and +1 are free too: the broker's VIP and replication ports."""
    return free_port(-2, 1)


class RealRocketMQ:
    """A name server and a broker on one store root.

    Args:
        store: the store root that the broker opens.
        work: a directory for logs and configuration.
        settings: further lines of broker.conf.

    Attributes:
        broker_heap: of the broker's JVM.
        short_life: flags of all its JVMs.
        idle: lines of broker.conf unless `settings` has others.
        version: RocketMQ's.
    """

    version = VERSION

    broker_heap = "512m"
    # A JVM lives for seconds: no second compiler, and no threads of a large collector. Half the CPU of a start.
    # One log file: RocketMQ's own configuration has 700 lines, and opens seventy.
    short_life: ClassVar[Sequence[str]] = (
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Drmq.logback.configurationFile={JAVA_SOURCES / 'logback.xml'}",
    )
    # A flush compares the 38 MiB of the timer wheel: each second, it is most of what an idle broker spends. A stop
    # flushes, too.
    idle: ClassVar[Mapping[str, object]] = MappingProxyType({"timerFlushIntervalMs": 10_000})

    def __init__(self, store: pathlib.Path, work: pathlib.Path, **settings: object) -> None:
        self.store = store
        self.work = work
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

    def _java(self, main: str, *args: str) -> list[str]:
        flags = (f"-Duser.home={self.work}", *self.short_life, *JVM_FLAGS)
        return ["java", *flags, "-cp", self.classpath(), main, *args]

    def _launch(self, name: str, port: int, main: str, *args: str, heap: str, jvm_flags: Sequence[str] = ()) -> None:
        home = self.work / "home"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        command = self._java(main, *args)
        command[1:1] = [f"-Xms{heap}", f"-Xmx{heap}", *jvm_flags]
        watch_log(self.work / f"{name}.log")
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
        """Start both processes; return once the broker is registered."""
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
        command = self._java("org.apache.rocketmq.tools.command.MQAdminStartup", *args, "-n", self.namesrv)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    def send(self, topic: str, prefix: str, count: int) -> list[tuple[str, str, int, int]]:
        """Send messages with a real producer; receipts (unique_key, offset_msg_id, queue_id, queue_offset)."""
        command = self._java("SendMessages", self.namesrv, topic, prefix, str(count))
        out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        rows = [line.split("\t") for line in out.splitlines() if line.count("\t") == 3]
        return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]

    def consume(self, topic: str, group: str, kind: str, expression: str, count: int) -> list[str]:
        """What a real consumer of a new group gets that filters by "sql" or by "tag": `KEYS BODY`, at least `count`."""
        command = self._java("ConsumeMessages", self.namesrv, group, topic, kind, expression, str(count), "3000")
        out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        return [line.removeprefix("> ") for line in out.splitlines() if line.startswith("> ")]

    def pop(self, topic: str, group: str, tags: str, count: int, failing_key: str) -> list[list[str]]:
        """What a real push consumer in POP mode gets: keys, body, how often it came before, and its handle; in any order.

        Its first try of the message with the failing key fails.
        """
        command = self._java("PopMessages", self.namesrv, group, topic, tags, str(count), failing_key)
        out = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True).stdout
        rows = [line.removeprefix("> ").split("|") for line in out.splitlines() if line.startswith("> ")]
        return sorted(rows)

    def stop(self) -> None:
        """End the broker, then the name server, cleanly."""
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def real_rocketmq(store: pathlib.Path, work: pathlib.Path, **settings: object) -> Iterator[RealRocketMQ]:
    """A running RocketMQ on `store`, stopped at the end."""
    broker = RealRocketMQ(store, work, **settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
