"""One client process that appends, or calls the bare echo, as fast as it can or at a given rate; prints one JSON line.

    python -m benchmarks.load '{"client": "producer", "target": "127.0.0.1:8081", "seconds": 5}'

Clients: `producer` (reput_client, a batch a call), `one by one` (a message a call), `stream` (an append stream without
the library), `unary` (threads with unary calls), `echo` (a stream to the bare echo with the same bytes).
"""

import json
import os
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from benchmarks import processes

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOPIC, LITE = "Bench", "BenchLite"
STREAM_WINDOW = 16  # requests under way at once on a stream
FIRST_ANSWER_SECONDS_MAX = 30.0
DRAIN_SECONDS_MAX = 60.0
RUN_SECONDS_EXTRA = 120.0


@dataclass(frozen=True)
class Load:
    """A load.

    Args:
        target: address of the service.
        client: a client of the module's docstring.
        service: `gateway` or `commitlog`; for `stream`.
        body_bytes: bytes of a message's body.
        batch_count: messages of a request; for `producer`, of a call.
        callers: threads of `unary`.
        sync: appends are answered after the flush.
        replicated: appends are answered when all in-sync replicas have them.
        topic_count: topics that messages take turns in; for `producer`.
        key_count: keys of a message; for `producer`.
        lite_count: lite topics that messages take turns in, of the topic LITE; 0: they are ordinary. For `producer`.
        warm_seconds: time before counting starts.
        seconds: time that is counted.
        rate: messages a second; 0: as fast as possible.
    """

    target: str
    client: str = "producer"
    service: str = "gateway"
    body_bytes: int = 1024
    batch_count: int = 32
    callers: int = 32
    sync: bool = False
    warm_seconds: float = 1.0
    seconds: float = 3.0
    rate: float = 0.0
    replicated: bool = False
    topic_count: int = 1
    key_count: int = 1
    lite_count: int = 0

    def command(self) -> list[str]:
        """The command that runs this load."""
        return [sys.executable, "-m", "benchmarks.load", json.dumps(asdict(self))]

    def run(self) -> Mapping[str, float]:
        """Runs the load in a process of its own.

        Returns:
            `rate` (messages/s), `count` (messages, with those of the warm-up), `cpu_micros` (of the client, for a message).
        """
        out = processes.run(self.command(), self.warm_seconds + self.seconds + RUN_SECONDS_EXTRA, env=environment())
        return dict(json.loads(out))


def environment() -> dict[str, str]:
    """The environment for commands of this checkout, without REPUT_ settings of the caller."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")} | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))
    }


def topic_of(number: int) -> str:
    """The name of a topic: that of most rows, and of more topics for rows that have many."""
    return TOPIC if number == 0 else f"{TOPIC}-{number}"


def lite_message(number: int, lite_number: int, body: bytes) -> Any:
    """The message with a number, of a lite topic."""
    from reput_client import NewMessage

    return NewMessage(LITE, body, (f"key-{number}",), "TagA", lite_topic=f"t{lite_number}")


class _Acks:
    """Counts acknowledged messages; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.error: BaseException | None = None

    def add(self, count: int) -> None:
        with self._lock:
            self.count += count


Appending = Callable[[Load, _Acks, Callable[[], bool]], None]


def _pace(load: Load) -> Callable[[int], None]:
    """A function that waits until a number of messages is due at the load's rate."""
    start = time.monotonic()

    def wait(sent: int) -> None:
        ahead = sent / load.rate - (time.monotonic() - start) if load.rate else 0
        if ahead > 0:
            time.sleep(ahead)

    return wait


Sending = Callable[[Any, range, bytes, Callable[[Any], None]], None]


def _producer(load: Load, acks: _Acks, is_over: Callable[[], bool]) -> None:
    """Sends a list of messages in each call, as RocketMQ's driver does."""
    from reput_client import NewMessage

    topics = [topic_of(number) for number in range(load.topic_count)]

    def send(producer: Any, numbers: range, body: bytes, delivered: Callable[[Any], None]) -> None:
        if load.lite_count:
            batch = [lite_message(number, number % load.lite_count, body) for number in numbers]
        elif load.key_count > 1:
            batch = [NewMessage(topics[number % len(topics)], body, keys_of(number), "TagA") for number in numbers]
        else:
            batch = [NewMessage(topics[number % len(topics)], body, (f"key-{number}",), "TagA") for number in numbers]
        producer.send_batch(batch).add_done_callback(delivered)

    def keys_of(number: int) -> tuple[str, ...]:
        return (f"key-{number}", *(f"key-{number}-{more}" for more in range(1, load.key_count)))

    # The lists that wait while the requests under way are not answered share the next request.
    _produce(load, acks, is_over, send, ack_count=load.batch_count, linger_millis=0)


def _one_by_one(load: Load, acks: _Acks, is_over: Callable[[], bool]) -> None:
    """Sends message by message, with a future for each."""

    def send(producer: Any, numbers: range, body: bytes, delivered: Callable[[Any], None]) -> None:
        for number in numbers:
            producer.send(TOPIC, body, keys=(f"key-{number}",), tags="TagA").add_done_callback(delivered)

    _produce(load, acks, is_over, send, ack_count=1, batch_count_max=load.batch_count)


def _produce(
    load: Load, acks: _Acks, is_over: Callable[[], bool], send: Sending, ack_count: int, **settings: Any
) -> None:
    from reput_client import FlushMode, Producer

    def delivered(future: Any) -> None:
        if future.exception() is None:
            acks.add(ack_count)
        else:
            acks.error = future.exception()

    body = os.urandom(load.body_bytes)
    wait = _pace(load)
    flush_mode = FlushMode.REPLICATED if load.replicated else FlushMode.SYNC if load.sync else FlushMode.ASYNC
    with Producer(load.target, flush_mode=flush_mode, **settings) as producer:
        sent = 0
        while not is_over() and acks.error is None:
            send(producer, range(sent + 1, sent + 1 + load.batch_count), body, delivered)
            sent += load.batch_count
            wait(sent)


def _messages(load: Load, first: int, body: bytes) -> list[Any]:
    from reput.message.v1 import message_pb2

    return [
        message_pb2.NewMessage(topic=TOPIC, body=body, keys=[f"key-{i}"], tags="TagA")
        for i in range(first, first + load.batch_count)
    ]


def _stream(load: Load, acks: _Acks, is_over: Callable[[], bool]) -> None:
    import grpc

    if load.service == "commitlog":
        from reput.commitlog.v1 import commitlog_service_pb2 as pb
        from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc

        stub_of: Any = pb_grpc.CommitLogServiceStub
    else:
        from reput.gateway.v1 import gateway_service_pb2 as pb  # type: ignore[no-redef]
        from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc  # type: ignore[no-redef]

        stub_of = pb_grpc.GatewayServiceStub  # type: ignore[attr-defined]
    body = os.urandom(load.body_bytes)
    wait = _pace(load)
    window: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(STREAM_WINDOW):
        window.put(None)

    def requests() -> Iterator[Any]:
        sent = 0
        while not is_over():
            window.get()
            yield pb.AppendMessageStreamRequest(messages=_messages(load, sent, body), flush=_flush(load))
            sent += load.batch_count
            wait(sent)

    with grpc.insecure_channel(load.target) as channel:
        for response in stub_of(channel).AppendMessageStream(requests()):
            window.put(None)
            if response.HasField("error"):
                raise RuntimeError(response.error.message)
            acks.add(len(response.results))


def _unary(load: Load, acks: _Acks, is_over: Callable[[], bool]) -> None:
    import grpc

    from reput.gateway.v1 import gateway_service_pb2 as pb
    from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc

    body = os.urandom(load.body_bytes)
    with grpc.insecure_channel(load.target) as channel:
        stub = pb_grpc.GatewayServiceStub(channel)

        def caller(number: int) -> None:
            sent = number << 32
            while not is_over():
                request = pb.AppendMessagesRequest(messages=_messages(load, sent, body), flush=_flush(load))
                acks.add(len(stub.AppendMessages(request, timeout=DRAIN_SECONDS_MAX).results))
                sent += load.batch_count

        threads = [threading.Thread(target=caller, args=(number,)) for number in range(load.callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _echo(load: Load, acks: _Acks, is_over: Callable[[], bool]) -> None:
    import grpc

    from benchmarks.sides.echo import STREAM

    payload = os.urandom(load.body_bytes * load.batch_count)
    window: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(STREAM_WINDOW):
        window.put(None)

    def requests() -> Iterator[bytes]:
        while not is_over():
            window.get()
            yield payload

    with grpc.insecure_channel(load.target) as channel:
        for _ in channel.stream_stream(STREAM)(requests()):
            window.put(None)
            acks.add(load.batch_count)


def _flush(load: Load) -> int:
    from reput.message.v1 import message_pb2

    if load.replicated:
        return int(message_pb2.FLUSH_MODE_REPLICATED)
    return int(message_pb2.FLUSH_MODE_SYNC if load.sync else message_pb2.FLUSH_MODE_ASYNC)


CLIENTS: dict[str, Appending] = {
    "producer": _producer,
    "one by one": _one_by_one,
    "stream": _stream,
    "unary": _unary,
    "echo": _echo,
}


def measure(load: Load) -> dict[str, float]:
    """Runs the load in this process; returns what `Load.run` does."""
    acks = _Acks()
    over = threading.Event()

    def work() -> None:
        try:
            CLIENTS[load.client](load, acks, over.is_set)
        except BaseException as error:  # a failure of one thread fails the whole load
            acks.error = error
            over.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun = time.monotonic()
    while not acks.count and time.monotonic() - begun < FIRST_ANSWER_SECONDS_MAX and not over.wait(0.01):
        pass  # connecting is not measured
    over.wait(load.warm_seconds)
    first_count, first_time = acks.count, time.monotonic()
    over.wait(load.seconds)
    count, seconds = acks.count - first_count, time.monotonic() - first_time
    over.set()
    thread.join(DRAIN_SECONDS_MAX)
    if acks.error is not None:
        raise acks.error
    if not count:
        raise RuntimeError("nothing was acknowledged in the measured time")
    cpu_micros = time.process_time() * 1e6 / acks.count
    return {"rate": count / seconds, "count": acks.count, "cpu_micros": cpu_micros}


def main() -> int:
    """Runs the load given as JSON in the argument."""
    given = json.loads(sys.argv[1])
    load = Load(**{field.name: given[field.name] for field in fields(Load) if field.name in given})
    print(json.dumps(measure(load)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
