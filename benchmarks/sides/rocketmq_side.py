"""RocketMQ for the benchmarks: name server, broker and gRPC proxy on loopback, and the drivers in `java/`."""

import contextlib
import functools
import hashlib
import json
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from benchmarks import processes
from benchmarks.sides import remoting
from tests.rocketmq import real_broker

JAVA_SOURCES = pathlib.Path(__file__).parents[1] / "java"
CLUSTER, BROKER = "DefaultCluster", "broker-a"
REGISTER_SECONDS_MAX = 60.0
PROXY_TRIES = 8  # the proxy exits while the name server does not know the broker's topics
DRIVER_SECONDS_MAX = 600.0
INSTALL_SECONDS_MAX = 900.0  # all jars from Maven Central
BROKER_HEAP, PROXY_HEAP = "2g", "1g"


def why_unavailable() -> str | None:
    """Why RocketMQ cannot run here, or None when it can."""
    return real_broker.why_unavailable()


@functools.cache
def classpath(version: str = real_broker.VERSION) -> str:
    """Jars of a version from Maven Central and compiled drivers, kept in `.tools/rocketmq`; rebuilt when a source changes."""
    sources = sorted(JAVA_SOURCES.iterdir())
    stamp = hashlib.sha256(b"".join([version.encode(), *(path.read_bytes() for path in sources)])).hexdigest()[:16]
    home = real_broker.TOOLS / f"benchmarks-{stamp}"
    listing = home / "classpath"
    if not listing.exists():
        shutil.rmtree(home, ignore_errors=True)
        (home / "classes").mkdir(parents=True)
        fresh = home / "classpath.new"
        maven = ["mvn", "-q", "-B", "-f", str(JAVA_SOURCES / "pom.xml"), "dependency:build-classpath"]
        processes.run(
            [*maven, f"-Drocketmq.version={version}", f"-Dmdep.outputFile={fresh}", "-Dmdep.includeScope=runtime"],
            INSTALL_SECONDS_MAX,
        )
        drivers = [str(path) for path in sources if path.suffix == ".java"]
        jars = fresh.read_text().strip()
        javac = ["javac", "-nowarn", "-cp", jars, "-d", str(home / "classes"), *drivers]
        processes.run(javac, INSTALL_SECONDS_MAX)
        fresh.rename(listing)
    return f"{home / 'classes'}:{listing.read_text().strip()}"


class RocketMQ(real_broker.RealRocketMQ):
    """A name server and a broker on one store root, with the heap of a production broker."""

    broker_heap = BROKER_HEAP
    short_life, idle, shares_names = (), MappingProxyType({}), False  # as a user runs it
    proxy_port = 0

    def classpath(self) -> str:
        """The jars, those of the proxy included, and the drivers of the benchmarks."""
        return classpath(self.version)

    def start_proxy(self) -> None:
        """Starts RocketMQ's gRPC proxy without TLS, on `proxy_port`."""
        first = real_broker.broker_port()
        self.proxy_port = first
        settings = {
            "rocketMQClusterName": CLUSTER,
            "namesrvAddr": self.namesrv,
            "grpcServerPort": first,
            "remotingListenPort": first + 1,
            "proxyMode": "CLUSTER",
        }
        (self.work / "home" / "conf" / "rmq-proxy.json").write_text(json.dumps(settings))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        for left in reversed(range(PROXY_TRIES)):
            try:
                self._launch(
                    "proxy", first, main, "-pm", "CLUSTER", "-n", self.namesrv,
                    heap=PROXY_HEAP, jvm_flags=("-Dtls.server.mode=disabled",),
                )  # fmt: skip
                return
            except RuntimeError:
                if not left:
                    raise
                self._processes.pop()
                time.sleep(1)

    def start_slave(self, **settings: object) -> None:
        """Starts a slave of the broker on a store of its own; returns once the master counts it as in sync."""
        port = real_broker.broker_port()
        lines = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerId": 1,
            "brokerRole": "SLAVE",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "listenPort": port,
            "haListenPort": port + 1,
            "storePathRootDir": self.work / "slave-store",
            **settings,
        }
        conf = self.work / "slave.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self._launch("slave", port, main, "-c", str(conf), heap=BROKER_HEAP)
        master = f"127.0.0.1:{self.broker_port}"
        processes.wait_for(
            lambda: "#InSyncSlaveNum\t1" in self.mqadmin("haStatus", "-b", master),
            "the slave",
            REGISTER_SECONDS_MAX,
            1.0,
        )

    def pids(self) -> list[int]:
        """Those of name server, broker and proxy that run."""
        return [process.pid for process in self._processes if process.poll() is None]

    def wait_until_built(self, seconds: float = 600.0) -> None:
        """Returns once queues and index hold the whole log."""
        processes.wait_for(self._is_built, "the broker's dispatch", seconds)

    def _is_built(self) -> bool:
        try:
            return remoting.runtime_info(self.broker_port).get("dispatchBehindBytes") == "0"
        except remoting.RefusedError:  # before StoreStatsService has taken its first sample, a second after the start
            return False

    def create_topic(self, topic: str, queue_count: int = 8) -> None:
        """Creates a topic; returns when the name server knows it."""
        remoting.create_topic(self.broker_port, topic, queue_count)

    def kill_broker(self) -> None:
        """Ends the broker with SIGKILL; the name server keeps running."""
        process = self._processes.pop()
        processes.end(process, signal.SIGKILL)

    def driver(self, main: str, *args: object) -> Any:
        """Runs one of our Java drivers; returns its one line of JSON."""
        return run_driver(self.work, main, *args, version=self.version)


def driver_command(work: pathlib.Path, main: str, *args: object, version: str = real_broker.VERSION) -> list[str]:
    """The command of one of our Java drivers, with the client of a version."""
    work.mkdir(parents=True, exist_ok=True)
    return ["java", f"-Duser.home={work}", *real_broker.JVM_FLAGS, "-cp", classpath(version), main, *map(str, args)]


def run_driver(work: pathlib.Path, main: str, *args: object, version: str = real_broker.VERSION) -> dict[str, Any]:
    """Runs a driver to its end.

    Returns:
        Its one line of JSON, and `wall_seconds` from its start, with that of the JVM, to that line.

    Raises:
        RuntimeError: it printed nothing or failed.
    """
    command = driver_command(work, main, *args, version=version)
    start = time.perf_counter()
    answer: dict[str, Any] = {}
    with open(work / f"{main}.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        overtime = threading.Timer(DRIVER_SECONDS_MAX, process.kill)
        overtime.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(b"{"):
                    answer = json.loads(line) | {"wall_seconds": time.perf_counter() - start}
            process.wait()
        finally:
            overtime.cancel()
            processes.end(process)
    if process.returncode or not answer:
        said = (work / f"{main}.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{main} ended with {process.returncode}:\n{said}")
    return answer


def json_line(out: bytes) -> dict[str, Any]:
    """The last line of JSON that a driver printed; RuntimeError when there is none."""
    lines = [line for line in out.splitlines() if line.startswith(b"{")]
    if not lines:
        raise RuntimeError(f"no figures: {out[-1000:]!r}")
    return dict(json.loads(lines[-1]))


class ShortLivedRocketMQ(RocketMQ):
    """The same for tests, which measure nothing."""

    broker_heap = real_broker.RealRocketMQ.broker_heap
    short_life, idle, shares_names = real_broker.SHORT_LIFE, real_broker.RealRocketMQ.idle, True


@contextlib.contextmanager
def running_rocketmq(
    store: pathlib.Path,
    work: pathlib.Path,
    kind: type[RocketMQ] = RocketMQ,
    /,
    *,
    proxy: bool = False,
    **settings: Any,
) -> Iterator[RocketMQ]:
    """A name server and a broker, and the proxy if asked for; they end with the block."""
    rocketmq = kind(store, work, **settings)
    try:
        rocketmq.start()
        if proxy:
            rocketmq.start_proxy()
        yield rocketmq
    finally:
        rocketmq.stop()
