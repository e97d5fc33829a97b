"""The first line to beat: appends and queries through the running services, and the engine alone.

    python -m benchmarks.bench [--seconds 3] [--queries 1000]

Rates are of this machine and this run; compare them with the bare echo of the same run (`python -m benchmarks.echo`).
"""

import argparse
import concurrent.futures
import json
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2

BODY = b"x" * 1024
BATCH_COUNT = 32
CALLERS = 32
STREAM_WINDOW = 16  # requests under way at once on the stream
START_SECONDS_MAX = 60


def _messages(first: int, count: int) -> list[message_pb2.NewMessage]:
    return [
        message_pb2.NewMessage(topic="Bench", body=BODY, keys=[f"key-{i}"], tags="TagA")
        for i in range(first, first + count)
    ]


def _unary_rate(stub: pb_grpc.GatewayServiceStub, seconds: float, batch_count: int, callers: int, flush: int) -> float:
    end = time.monotonic() + seconds

    def caller(number: int) -> int:
        sent = 0
        while time.monotonic() < end:
            messages = _messages(number * 10_000_000 + sent, batch_count)
            stub.AppendMessages(pb.AppendMessagesRequest(messages=messages, flush=flush))
            sent += batch_count
        return sent

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        total = sum(pool.map(caller, range(callers)))
    return total / (time.monotonic() - start)


def _stream_rate(stub: pb_grpc.GatewayServiceStub, seconds: float, flush: int) -> float:
    window: queue.Queue[None] = queue.Queue(STREAM_WINDOW)
    end = time.monotonic() + seconds
    request = pb.AppendMessageStreamRequest(messages=_messages(0, BATCH_COUNT), flush=flush)

    def requests() -> Iterator[pb.AppendMessageStreamRequest]:
        while time.monotonic() < end:
            window.put(None)
            yield request

    start = time.monotonic()
    count = 0
    for response in stub.AppendMessageStream(requests()):
        if response.HasField("error"):
            raise RuntimeError(response.error.message)
        window.get()
        count += len(response.results)
    return count / (time.monotonic() - start)


def _latencies_millis(call: Callable[[int], object], count: int) -> str:
    samples = []
    for i in range(count):
        start = time.perf_counter()
        call(i)
        samples.append((time.perf_counter() - start) * 1000)
    cuts = statistics.quantiles(samples, n=100)
    return f"p50 {cuts[49]:6.2f} ms   p99 {cuts[98]:6.2f} ms"


def _wait_until_built(stub: pb_grpc.GatewayServiceStub) -> None:
    end_offset = -1
    while True:
        rows = {row.service: row for row in stub.GetStatus(pb.GetStatusRequest()).services}
        end_offset = end_offset if end_offset >= 0 else rows["commitlog"].log_end_offset
        if min(rows["consumequeue"].next_offset, rows["index"].next_offset) >= end_offset:
            return
        time.sleep(0.05)


def main() -> int:
    """Start the services on an empty store, run the table, stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each append measurement")
    parser.add_argument("--queries", type=int, default=1000, help="queries of each mode")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reput-bench-") as scratch:
        port_file = pathlib.Path(scratch) / "ports.json"
        command = [sys.executable, "-m", "cli.main", "serve", "--store", f"{scratch}/store"]
        command += ["--gateway-port", "0", "--console-port", "0", "--port-file", str(port_file)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as serve:
            try:
                deadline = time.monotonic() + START_SECONDS_MAX
                while not port_file.exists():
                    if serve.poll() is not None or time.monotonic() > deadline:
                        print("the services did not start", file=sys.stderr)
                        return 1
                    time.sleep(0.05)
                address = json.loads(port_file.read_text())["gateway"]
                with grpc.insecure_channel(address) as channel:
                    _run(pb_grpc.GatewayServiceStub(channel), options.seconds, options.queries)
            finally:
                serve.terminate()
    return 0


def _run(stub: pb_grpc.GatewayServiceStub, seconds: float, queries: int) -> None:
    for name, flush in (("async", message_pb2.FLUSH_MODE_ASYNC), ("sync", message_pb2.FLUSH_MODE_SYNC)):
        rates = {
            f"unary, {CALLERS} callers": _unary_rate(stub, seconds, 1, CALLERS, flush),
            f"batch of {BATCH_COUNT}, 4 callers": _unary_rate(stub, seconds, BATCH_COUNT, 4, flush),
            f"stream of {BATCH_COUNT}": _stream_rate(stub, seconds, flush),
        }
        for what, rate in rates.items():
            print(f"append {name:5} {what:22} {rate:10,.0f} messages/s")
    _wait_until_built(stub)
    receipts = stub.AppendMessages(pb.AppendMessagesRequest(messages=_messages(900_000_000, 512))).results
    _wait_until_built(stub)

    def by_key(i: int) -> None:
        request = pb.QueryMessageByKeyRequest(topic="Bench", key=f"key-{900_000_000 + i % len(receipts)}")
        if len(stub.QueryMessageByKey(request).messages) != 1:
            raise RuntimeError(f"key-{900_000_000 + i} is not found once")

    def by_id(i: int) -> None:
        stub.QueryMessageById(pb.QueryMessageByIdRequest(offset_msg_id=receipts[i % len(receipts)].offset_msg_id))

    def by_unique_key(i: int) -> None:
        request = pb.QueryMessageByUniqueKeyRequest(topic="Bench", unique_key=receipts[i % len(receipts)].unique_key)
        if not stub.QueryMessageByUniqueKey(request).messages:
            raise RuntimeError("a unique key is not found")

    def by_offset(i: int) -> None:
        receipt = receipts[i % len(receipts)]
        stub.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(
                topic="Bench", queue_id=receipt.queue_id, queue_offset=receipt.queue_offset, max_messages=1
            )
        )

    for name, call in (
        ("key", by_key),
        ("id", by_id),
        ("unique key", by_unique_key),
        ("offset", by_offset),
    ):
        print(f"query by {name:10} {_latencies_millis(call, queries)}")


if __name__ == "__main__":
    sys.exit(main())
