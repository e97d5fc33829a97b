"""What one shard really takes: the latency and the gateway's CPU of each call to its ports, over TCP on this machine.

    {"machine": {...},
     "calls": {"search_1": {"latencies_millis": [201 quantiles], "cpu_millis": 0.3, "count": 1500}, ...},
     "real": {"3": {"p50_millis": 3.1, "p99_millis": 9.8}, ...}}

The CPU of a call is of the whole process, gRPC's threads included, with as many calls under way as a fan-out has. `real` is
a query by unique key by the gateway's own code and threads over so many connections to the shard, as if they were shards of
their own: what the simulation of that has to come near.
"""

import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from benchmarks import machine
from benchmarks.sides.our_side import running_stack
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, get_record, get_records, get_units, list_queues, search_key, topics_of
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_unique_key
from gateway.queries.page import PageTokens
from gateway.shards.remote import open_shard
from gateway.shards.targets import ShardTargets
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

MESSAGE_COUNT, BATCH_COUNT, BODY_BYTES = 20_000, 500, 1024
TOPIC = "Scale"
KEY_COUNT = MESSAGE_COUNT // 64  # so that a key has 64 messages
CALL_COUNT, WARM_COUNT, PARALLEL_COUNT = 1_500, 200, 16
QUANTILE_COUNT = 200
CALL_SECONDS = 30.0
REAL_SHARD_COUNTS = (1, 3, 10)
THREAD_COUNT = 64
SETTINGS = {
    "REPUT_COMMITLOG_ADDRESS": "127.0.0.1:0",
    "REPUT_CONSUMEQUEUE_ADDRESS": "127.0.0.1:0",
    "REPUT_INDEX_ADDRESS": "127.0.0.1:0",
    "REPUT_INDEX_HASH_SLOT_COUNT": "100000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "400000",
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(64 << 20),
    "REPUT_LOG_LEVEL": "warning",
}
DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "port_latencies.json"


@dataclass(frozen=True)
class CallCost:
    """One kind of call.

    Args:
        latencies_millis: quantiles, from the least to the greatest.
        cpu_millis: of the gateway's process, for one call.
        count: calls measured.
    """

    latencies_millis: tuple[float, ...]
    cpu_millis: float
    count: int


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Args:
        machine: see machine.py.
        calls: by name.
        real: (p50, p99) in milliseconds, by shards.
    """

    machine: Mapping[str, str]
    calls: Mapping[str, CallCost]
    real: Mapping[int, tuple[float, float]]


def load(path: pathlib.Path = DATA) -> Measured:
    """What `measure` wrote."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    calls = {
        name: CallCost(tuple(call["latencies_millis"]), call["cpu_millis"], call["count"])
        for name, call in raw["calls"].items()
    }
    real = {int(count): (one["p50_millis"], one["p99_millis"]) for count, one in raw["real"].items()}
    return Measured(raw["machine"], calls, real)


def measure(say: Callable[[str], None], path: pathlib.Path = DATA) -> None:
    """Start a shard, fill it, measure, and write what came out."""
    with tempfile.TemporaryDirectory(prefix="reput-simulate-") as scratch:
        root = pathlib.Path(scratch)
        with running_stack(root / "store", SETTINGS) as stack:
            say("filling a shard")
            results = _fill(stack.gateway)
            stack.wait_until_built()
            addresses = stack.addresses
            targets = ShardTargets("broker-a", addresses["commitlog"], addresses["consumequeue"], addresses["index"])
            opened = open_shard(targets)
            calls = {}
            for name, call in _calls(opened.shard, results).items():
                say(f"measuring {name}")
                calls[name] = _cost(call)
            opened.close()
            say("measuring whole queries")
            real = {count: _whole_queries(targets, count) for count in REAL_SHARD_COUNTS}
            calls["front"] = _front_cost(stack.gateway, stack.children()["gateway"], say)
        text = json.dumps(
            {
                "machine": machine.describe(root),
                "calls": {
                    name: {
                        "latencies_millis": [round(value, 4) for value in cost.latencies_millis],
                        "cpu_millis": round(cost.cpu_millis, 4),
                        "count": cost.count,
                    }
                    for name, cost in calls.items()
                },
                "real": {
                    str(count): {"p50_millis": round(p50, 3), "p99_millis": round(p99, 3)}
                    for count, (p50, p99) in real.items()
                },
            },
            indent=1,
        )
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def _fill(gateway: object) -> list[message_pb2.AppendResult]:
    results: list[message_pb2.AppendResult] = []
    for begin in range(0, MESSAGE_COUNT, BATCH_COUNT):
        messages = [
            message_pb2.NewMessage(
                topic=TOPIC, body=bytes(BODY_BYTES), keys=[f"key-{number % KEY_COUNT}"], unique_key=f"unique-{number}"
            )
            for number in range(begin, begin + BATCH_COUNT)
        ]
        request = pb.AppendMessagesRequest(messages=messages)
        results += gateway.AppendMessages(request, timeout=CALL_SECONDS).results  # type: ignore[attr-defined]
    return results


def _calls(shard: Shard, results: list[message_pb2.AppendResult]) -> dict[str, Callable[[int], object]]:
    """The calls, each given a number that spreads them over the store."""
    offsets = [result.commit_log_offset for result in results]

    def deadline() -> Deadline:
        return Deadline.after(CALL_SECONDS)

    def search(key: str, count_max: int) -> object:
        return search_key(shard, TOPIC, key, TimeWindow(), below_offset=None, count_max=count_max, deadline=deadline())

    def get_many(number: int, count: int) -> object:
        some = [offsets[(number * 7 + step * KEY_COUNT) % MESSAGE_COUNT] for step in range(count)]
        return get_records(shard, some, 3_670_016, deadline())

    return {
        "search_none": lambda number: search(f"none-{number}", 65),
        "search_1": lambda number: search(f"unique-{number * 11 % MESSAGE_COUNT}", 65),
        "search_64": lambda number: search(f"key-{number % KEY_COUNT}", 65),
        "get": lambda number: get_record(shard, offsets[number * 13 % MESSAGE_COUNT], deadline()),
        "get_many_1": lambda number: get_many(number, 1),
        "get_many_64": lambda number: get_many(number, 64),
        "units": lambda number: get_units(shard, TOPIC, number % 8, number % 2_000, 1, deadline()),
        "queue_counts": lambda number: topics_of(shard, deadline()),
        "list_queues": lambda number: list_queues(shard, TOPIC, deadline()),
    }


def _cost(call: Callable[[int], object]) -> CallCost:
    for number in range(WARM_COUNT):
        call(number)
    latencies = []
    for number in range(CALL_COUNT):
        begin = time.perf_counter()
        call(number)
        latencies.append((time.perf_counter() - begin) * 1000)
    with ThreadPoolExecutor(PARALLEL_COUNT) as pool:
        list(pool.map(call, range(WARM_COUNT)))
        begin_cpu = time.process_time()
        list(pool.map(call, range(CALL_COUNT)))
        cpu_millis = (time.process_time() - begin_cpu) * 1000 / CALL_COUNT
    quantiles = [min(latencies), *statistics.quantiles(latencies, n=QUANTILE_COUNT), max(latencies)]
    return CallCost(tuple(quantiles), cpu_millis, CALL_COUNT)


def _whole_queries(targets: ShardTargets, shard_count: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds, one query at a time."""
    opened = [open_shard(replace(targets, broker_name=f"broker-{number}")) for number in range(shard_count)]
    fan_out = FanOut(THREAD_COUNT)
    shards = Shards([one.shard for one in opened], fan_out)
    tokens = PageTokens("simulation")
    latencies = []
    for number in range(-WARM_COUNT, CALL_COUNT // 3):
        begin = time.perf_counter()
        answer = query_by_unique_key(
            shards,
            tokens,
            TOPIC,
            f"unique-{number * 11 % MESSAGE_COUNT}",
            page_size_asked=64,
            page_token="",
            deadline=Deadline.after(CALL_SECONDS),
        )
        assert len(answer.entries) == shard_count
        if number >= 0:
            latencies.append((time.perf_counter() - begin) * 1000)
    fan_out.close()
    for one in opened:
        one.close()
    return statistics.median(latencies), sorted(latencies)[int(0.99 * len(latencies))]


def _front_cost(gateway: object, pid: int, say: Callable[[str], None]) -> CallCost:
    """A client's call that asks no shard: what gRPC's server side and the interceptors take for each query."""
    from benchmarks.processes import cpu_seconds

    say("measuring the front")
    latencies = []
    request = pb.QueryMessageByIdRequest(offset_msg_id="none")
    begin_cpu = 0.0
    for number in range(-WARM_COUNT, CALL_COUNT):
        if number == 0:
            begin_cpu = cpu_seconds([pid])
        begin = time.perf_counter()
        call = gateway.QueryMessageById.future(request, timeout=CALL_SECONDS)  # type: ignore[attr-defined]
        assert call.exception() is not None, "no id, and yet an answer"
        if number >= 0:
            latencies.append((time.perf_counter() - begin) * 1000)
    cpu_millis = (cpu_seconds([pid]) - begin_cpu) * 1000 / CALL_COUNT
    quantiles = [min(latencies), *statistics.quantiles(latencies, n=QUANTILE_COUNT), max(latencies)]
    return CallCost(tuple(quantiles), cpu_millis, CALL_COUNT)
