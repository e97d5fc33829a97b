"""The upper bound: rates of Python's gRPC servers that do no work.

    python -m benchmarks.sides.echo            unary and stream echoes, threaded and aio servers, one Python client

Prints calls (or messages) a second for each; compare the ratios, not the figures: machines differ and are noisy.
"""

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import grpc

UNARY, STREAM = "/echo.Echo/Unary", "/echo.Echo/Stream"
BATCH_COUNT, MESSAGE_BYTES = 32, 1024
CALLERS, SECONDS, ROUNDS = 32, 2.0, 3
WORKER_COUNT = 64  # as in our services


class _ThreadedHandlers(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method == UNARY:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)


def _serve_threaded(pipe: Connection) -> None:
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(WORKER_COUNT))
    server.add_generic_rpc_handlers((_ThreadedHandlers(),))
    pipe.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    wait_for_end(pipe)
    server.stop(None).wait()


def _serve_aio(pipe: Connection) -> None:
    async def unary(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return request

    async def stream(requests: object, context: grpc.aio.ServicerContext) -> object:
        async for request in requests:
            yield request

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            if details.method == UNARY:
                return grpc.unary_unary_rpc_method_handler(unary)
            return grpc.stream_stream_rpc_method_handler(stream)

    async def main() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Handlers(),))
        pipe.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await asyncio.get_running_loop().run_in_executor(None, wait_for_end, pipe)
        await server.stop(None)

    asyncio.run(main())


def wait_for_end(pipe: Connection) -> None:
    """Returns when asked to end, or when the parent process is gone."""
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        pipe.recv()


@contextlib.contextmanager
def running_echo(kind: str = "threads") -> Iterator[str]:
    """The address of an echo server, `threads` or `aio`, in a process of its own, which ends with the block."""
    with running(_serve_threaded if kind == "threads" else _serve_aio) as address:
        yield address


@contextlib.contextmanager
def running(serve: Callable[[Connection], None]) -> Iterator[str]:
    """The address of a server in a process of its own, which ends with the block.

    Args:
        serve: sends its port by the pipe, then serves until `wait_for_end` returns.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield f"127.0.0.1:{ours.recv()}"
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def unary_latencies_millis(address: str, count: int) -> list[float]:
    """Latencies of `count` calls with 1 KiB by one caller, after half as many calls to warm up."""
    payload = b"x" * MESSAGE_BYTES
    samples = []
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(UNARY)
        for i in range(-(count // 2), count):
            start = time.perf_counter()
            call(payload)
            if i >= 0:
                samples.append((time.perf_counter() - start) * 1000)
    return samples


def _unary_rate(channel: grpc.Channel) -> float:
    call = channel.unary_unary(UNARY)
    payload = b"x" * MESSAGE_BYTES
    end = time.monotonic() + SECONDS

    def caller(_: int) -> int:
        count = 0
        while time.monotonic() < end:
            call(payload)
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        return sum(pool.map(caller, range(CALLERS))) / SECONDS


def _stream_rate(channel: grpc.Channel) -> float:
    call = channel.stream_stream(STREAM)
    payload = b"x" * (MESSAGE_BYTES * BATCH_COUNT)
    end = time.monotonic() + SECONDS

    def requests() -> Iterator[bytes]:
        while time.monotonic() < end:
            yield payload

    start = time.monotonic()
    count = sum(1 for _ in call(requests()))
    return count * BATCH_COUNT / (time.monotonic() - start)


def main() -> None:
    """Runs the rounds, alternating, and prints medians."""
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name in ("threads", "aio"):
            with running_echo(name) as address, grpc.insecure_channel(address) as channel:
                rates.setdefault(f"{name} unary calls/s", []).append(_unary_rate(channel))
                rates.setdefault(f"{name} stream of {BATCH_COUNT} messages/s", []).append(_stream_rate(channel))
    for name, values in sorted(rates.items()):
        print(f"{name:36} {statistics.median(values):10,.0f}   ({min(values):,.0f} to {max(values):,.0f})")


if __name__ == "__main__":
    sys.exit(main())
