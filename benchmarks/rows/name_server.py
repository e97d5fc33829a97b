"""Row 32: the name server with many brokers and topics."""

import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_most, part_of_theirs, quantile
from benchmarks.load import environment
from benchmarks.row import Context, Row
from benchmarks.sides import remoting, rocketmq_side
from benchmarks.sizes import TINY, Sizes
from services.rocketmq.address import parse_address
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from services.rocketmq.registration import encode_registration
from store.format.topic import DataVersion, TopicConfig

BROKER_COUNT, TOPIC_COUNT = 1_000, 100_000
TINY_PART = 100  # so many times fewer of both in a tiny run
FIRST, AGAIN, CHANGED = "all brokers register", "all register again, unchanged", "all register again, changed"
ROUTE_P50, ROUTE_P99, MEMORY = "a route, p50", "a route, p99", "RSS"
START_SECONDS_MAX = 60.0
QUEUE_COUNT = 8


class NameServerRow(Row):
    """Row 32."""

    number = 32
    title = f"Name server with {BROKER_COUNT:,} brokers and {TOPIC_COUNT:,} topics"
    cause = (
        "Each registration of 100 topics is decoded and compared in Python, 0.5 ms; the JVM is cold only at the "
        "first (ADR 0134)."
    )
    what = (
        f"Each broker registers {TOPIC_COUNT // BROKER_COUNT} topics over a connection that it keeps, one broker after the "
        "other; then one client asks for routes, one after the other, topics chosen evenly. Only name servers run; "
        "theirs is RocketMQ's, and its JVM is cold when the first broker registers."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        as_fast = part_of_theirs(1.0)
        self.metrics = (
            Metric(FIRST, "s", lower_is_better=True, target=as_fast),
            Metric(AGAIN, "s", lower_is_better=True, target=as_fast),
            Metric(CHANGED, "s", lower_is_better=True, target=as_fast),
            Metric(ROUTE_P50, "ms", lower_is_better=True, target=as_fast),
            Metric(ROUTE_P99, "ms", lower_is_better=True),
            Metric(MEMORY, "MiB", lower_is_better=True, target=at_most(300, "MiB")),
        )
        self._broker_count = BROKER_COUNT // (TINY_PART if sizes.name == TINY.name else 1)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with context.directory() as path, _ours(path) if side == OURS else _theirs(path) as (port, pid):
            return self._measure(port, pid)

    def _measure(self, port: int, pid: int) -> Mapping[str, float]:
        per_broker = TOPIC_COUNT // BROKER_COUNT
        values: dict[str, float] = {}
        with contextlib.ExitStack() as opened:
            clients = [opened.enter_context(remoting.open_connection(port)) for _ in range(self._broker_count)]
            for what, counter in ((FIRST, 1), (AGAIN, 1), (CHANGED, 2)):
                commands = [_registration(number, per_broker, counter) for number in range(self._broker_count)]
                begin = time.perf_counter()
                for client, command in zip(clients, commands, strict=True):
                    client.ask(command)
                values[what] = time.perf_counter() - begin
            asker = opened.enter_context(remoting.open_connection(port))
            count = self.sizes.query_count
            step = self._broker_count * per_broker / count
            millis = []
            for number in range(-(count // 2), count):
                topic = _topic(int(abs(number) * step) % (self._broker_count * per_broker))
                begin = time.perf_counter()
                answer = asker.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
                if number >= 0:
                    millis.append((time.perf_counter() - begin) * 1000)
                if b"queueDatas" not in answer.body:
                    raise RuntimeError(f"no route for {topic}: {answer.remark}")
            values |= {ROUTE_P50: quantile(millis, 0.5), ROUTE_P99: quantile(millis, 0.99)}
            return values | {MEMORY: processes.memory_mib([pid])}


def _topic(number: int) -> str:
    return f"Topic-of-some-department-{number:06}"


def _registration(number: int, topic_count: int, counter: int) -> Command:
    first = number * topic_count
    topics = [TopicConfig(_topic(at), QUEUE_COUNT, QUEUE_COUNT) for at in range(first, first + topic_count)]
    host = f"10.{number >> 8}.{number & 255}.1"
    said = {
        "clusterName": f"cluster-{number % 10}",
        "brokerName": f"broker-{number:04}",
        "brokerId": "0",
        "brokerAddr": f"{host}:10911",
        "haServerAddr": f"{host}:10912",
    }
    fields, body = encode_registration(said, DataVersion(0, 1_000, counter), topics)
    return Command(RequestCode.REGISTER_BROKER, fields, body)


@contextlib.contextmanager
def _ours(path: pathlib.Path) -> Iterator[tuple[int, int]]:
    address_file = path / "address"
    settings = {
        # A port: the path of a directory for tests can be too long for a socket.
        "REPUT_NAMESERVER_ADDRESS": "127.0.0.1:0",
        "REPUT_NAMESERVER_REMOTING_ADDRESS": "127.0.0.1:0",
        "REPUT_NAMESERVER_REMOTING_ADDRESS_FILE": str(address_file),
        "REPUT_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-m", "nameserver_svc"]
    with (
        open(path / "log", "wb") as log,
        processes.ended(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment() | settings)
        ) as process,
    ):
        processes.wait_for(address_file.exists, "the name server", START_SECONDS_MAX)
        yield parse_address(address_file.read_text().strip()).port, process.pid


@contextlib.contextmanager
def _theirs(path: pathlib.Path) -> Iterator[tuple[int, int]]:
    rocketmq = rocketmq_side.RocketMQ(path / "store", path / "work")
    try:
        rocketmq.start_name_server()
        (pid,) = rocketmq.pids()
        yield rocketmq.namesrv_port, pid
    finally:
        rocketmq.stop()
