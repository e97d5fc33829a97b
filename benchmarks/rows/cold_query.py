"""Row 7: one query typed on a command line."""

import pathlib
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks import processes
from benchmarks.figures import OURS, Medians, Metric, Target
from benchmarks.figures import THEIRS as ROCKETMQ
from benchmarks.load import TOPIC, environment
from benchmarks.row import Context, Row
from benchmarks.sizes import Sizes
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

KEY = "key-1"
QUERY = "query by key"
MILLIS_MAX, TIMES_FASTER = 400.0, 10.0
UNIQUE_KEY = re.compile(r"\b[0-9A-F]{24,}")  # as both commands print it for each message found
COMMAND_SECONDS_MAX = 120.0


def _bound(medians: Medians) -> float:
    return min(medians[ROCKETMQ] / TIMES_FASTER, MILLIS_MAX)


class ColdQuery(Row):
    """Row 7."""

    number = 7
    title = "One command-line query, cold"
    what = "`reput queryMsgByKey` against `mqadmin queryMsgByKey`, each a fresh process, the services are running."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = Target(f">= {TIMES_FASTER:g} times as fast as mqadmin, and < {MILLIS_MAX:g} ms", _bound)
        self.metrics = (Metric(QUERY, "ms", lower_is_better=True, target=target),)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round: the median of several commands."""
        return self._ours(context) if side == OURS else self._theirs(context)

    def _ours(self, context: Context) -> Mapping[str, float]:
        with context.ours() as stack:
            message = message_pb2.NewMessage(topic=TOPIC, body=b"x" * 1024, keys=[KEY])
            stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=30)
            stack.wait_until_built()
            installed = pathlib.Path(sys.executable).with_name("reput")
            command = [str(installed)] if installed.exists() else [sys.executable, "-m", "cli.main"]
            command += ["queryMsgByKey", "-t", TOPIC, "-k", KEY]
            env = environment() | {"REPUT_ADDRESS": stack.addresses["gateway"]}

            def ask() -> str:
                return processes.run(command, COMMAND_SECONDS_MAX, env=env).decode()

            return {QUERY: self._median_millis(ask)}

    def _theirs(self, context: Context) -> Mapping[str, float]:
        with context.theirs() as rocketmq:
            rocketmq.create_topic(TOPIC)
            rocketmq.driver("AppendLoad", rocketmq.namesrv, TOPIC, 1, 1024, 1, 0.1, 0.1)
            rocketmq.wait_until_built()

            def ask() -> str:
                return rocketmq.mqadmin("queryMsgByKey", "-t", TOPIC, "-k", KEY)

            return {QUERY: self._median_millis(ask)}

    def _median_millis(self, ask: Callable[[], str]) -> float:
        samples = []
        for _ in range(self.sizes.cold_count):
            start = time.perf_counter()
            answer = ask()
            samples.append((time.perf_counter() - start) * 1000)
            if not UNIQUE_KEY.search(answer):
                raise RuntimeError(f"the message was not found:\n{answer[-2000:]}")
        return statistics.median(samples)
