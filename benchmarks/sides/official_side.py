"""RocketMQ's official Java client, version 5, as the load of rows 3c, 13 to 16 and 20; its drivers are in `official_java/`."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import processes
from benchmarks.figures import OURS
from benchmarks.load import TOPIC, Load
from benchmarks.row import Context
from benchmarks.sides import remoting, rocketmq_side
from tests.clients import servers
from tests.rocketmq import real_broker

SOURCES = pathlib.Path(__file__).parents[1] / "official_java"
RUN_SECONDS_EXTRA = 180.0
QUEUE_COUNT = 8
GROUP = "bench-group"
BODY_BYTES = 1024
FILL_BATCH, FILL_THREADS = 32, 2
HEAP = "-Xmx512m"


def classpath() -> str:
    """The client's jars and the compiled drivers."""
    return real_broker.build_classpath(SOURCES, real_broker.TOOLS.with_name("official-load"))


def consume(endpoint: str, mode: str, context: Context, *more: object) -> dict[str, Any]:
    """What the driver measures; see ConsumeLoad.java for its modes."""
    sizes = context.sizes
    return _drive(
        context, "ConsumeLoad", mode, endpoint, TOPIC, GROUP, sizes.warm_seconds, sizes.measure_seconds, *more
    )


def send(endpoint: str, mode: str, context: Context, thread_count: int) -> dict[str, Any]:
    """What the driver measures; see SendLoad.java for its modes. `count` is of all, those of the warm-up too."""
    sizes = context.sizes
    more = (sizes.warm_seconds, sizes.measure_seconds, thread_count, BODY_BYTES)
    return _drive(context, "SendLoad", mode, endpoint, TOPIC, *more)


def _drive(context: Context, main: str, *arguments: object) -> dict[str, Any]:
    seconds = context.sizes.warm_seconds + context.sizes.measure_seconds
    with context.directory() as home:
        command = ["java", HEAP, f"-Duser.home={home}", "-cp", classpath(), main, *map(str, arguments)]
        out = processes.run(command, seconds + RUN_SECONDS_EXTRA)
    return rocketmq_side.json_line(out)


@dataclass(frozen=True)
class Served:
    """A side that runs and has the topic.

    Args:
        endpoint: of its gateway or proxy.
        root: its store root.
        fill: sends messages of 1 KiB for so many seconds, and returns when they can be consumed.
    """

    endpoint: str
    root: pathlib.Path
    fill: Callable[[float], None]


@contextlib.contextmanager
def serving(side: str, context: Context, message_type: str = "NORMAL") -> Iterator[Served]:
    """A side with an empty topic of a type."""
    if side == OURS:
        with context.ours() as stack:
            server = servers.ReputServer(stack)
            server.create_topic(TOPIC, QUEUE_COUNT, message_type)

            def fill_ours(seconds: float) -> None:
                Load(stack.addresses["gateway"], body_bytes=BODY_BYTES, warm_seconds=0, seconds=seconds).run()
                stack.wait_until_built()

            yield Served(server.endpoint, stack.store, fill_ours)
        return
    # By default it refuses what a busy machine lets wait for 200 ms.
    with context.theirs(proxy=True, waitTimeMillsInSendQueue=10_000) as rocketmq:
        remoting.create_topic(rocketmq.broker_port, TOPIC, QUEUE_COUNT, message_type)
        remoting.create_group(rocketmq.broker_port, GROUP, ordered=False, delivery_attempts_max=17)
        theirs = servers.RealServer(rocketmq)
        servers.wait_until_routed(theirs, TOPIC)

        def fill_theirs(seconds: float) -> None:
            rocketmq.driver("AppendLoad", rocketmq.namesrv, TOPIC, FILL_THREADS, BODY_BYTES, FILL_BATCH, 0, seconds)
            rocketmq.wait_until_built()

        yield Served(theirs.endpoint, rocketmq.store, fill_theirs)


@contextlib.contextmanager
def filled(side: str, context: Context, fill_seconds: float) -> Iterator[str]:
    """The endpoint of a side whose topic got messages of 1 KiB for so long; without messages for 0 seconds."""
    with serving(side, context) as served:
        if fill_seconds:
            served.fill(fill_seconds)
        yield served.endpoint
