"""kill -9 of any service at any moment, under load: nothing acknowledged is lost, nothing is there twice.

The six services run as processes of their own on one store, writers append through the gateway with sync flush and never
send a message twice. Again and again, after a random number of further acknowledgements, one or two of the services are
killed and started again. In the end the builders catch up, all stop, and the files are judged by brute force.
"""

import contextlib
import queue
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from tests.support.ports import free_port
from tests.support.service import CHANNEL_OPTIONS, Service
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount, level
from tests.torture.seeds import pick_seed
from tests.torture.store_check import IndexLayout, Place, check_store
from tests.torture.stores import TIME_LIMIT

pytestmark = TIME_LIMIT
NAMES = ("commitlog", "consumequeue", "index", "consumer", "schedule", "gateway")
KILLS_PER_STORE = 50
WRITER_COUNT = 2
BATCH_MAX = 8
PACE_SECONDS = 0.01  # after each request: what is tested are kills, on a machine that has other work
LAYOUT = IndexLayout(503, 2000)
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "131072",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_INDEX_HASH_SLOT_COUNT": str(LAYOUT.slot_count),
    "REPUT_INDEX_ENTRY_COUNT_MAX": str(LAYOUT.entry_count_max),
    "REPUT_COMMITLOG_DISK_FULL_FREE_BYTES": "0",  # how full the disk of the test machine is does not matter here
    "REPUT_COMMITLOG_DISK_FULL_RATIO_PERCENT": "100",
    "REPUT_LOG_LEVEL": "warning",
}


class Services:
    """The six services on one store, each of which may be killed and started again at the same address.

    Args:
        store: the store root.
        settings: further environment variables.
        environs: more of them, by service.
        on_ports: they listen on ports instead of sockets.
    """

    def __init__(
        self,
        store: Path,
        settings: Mapping[str, str] | None = None,
        environs: Mapping[str, Mapping[str, str]] | None = None,
        *,
        on_ports: bool = False,
    ) -> None:
        self._sockets = Path(tempfile.mkdtemp(prefix="reput-"))
        self._settings = {**SETTINGS, **(settings or {})}
        self._environs = environs or {}
        for name in NAMES:
            address = f"127.0.0.1:{free_port()}" if on_ports else f"unix:{self._sockets / name}.sock"
            self._settings[f"REPUT_{name.upper()}_ADDRESS"] = address
            self._settings[f"REPUT_{name.upper()}_TARGET"] = address
        del self._settings["REPUT_GATEWAY_TARGET"]
        self._store = store
        self._running: dict[str, Service] = {}
        try:
            self.start(NAMES)
        except BaseException:
            self.close()
            raise

    @property
    def gateway(self) -> str:
        """Its address."""
        return self._settings["REPUT_GATEWAY_ADDRESS"]

    @property
    def consumer(self) -> str:
        """The consumer service's address."""
        return self._settings["REPUT_CONSUMER_ADDRESS"]

    def running(self, name: str) -> Service:
        """One of them."""
        return self._running[name]

    def start(self, names: tuple[str, ...]) -> None:
        """Starts some at the same time and returns when they serve."""
        for name in names:
            settings = {**self._settings, **self._environs.get(name, {})}
            self._running[name] = Service(name, self._store, settings, wait="")
        for name in names:
            self._running[name].wait_until("serving")

    def kill(self, names: tuple[str, ...]) -> None:
        """SIGKILL to each."""
        for name in names:
            running = self._running[name]
            assert running.process.poll() is None, f"{name} had ended by itself:\n{running.log()[-3000:]}"
            running.process.kill()
        for name in names:
            self._running[name].__exit__(None, None, None)

    def wait_until_built(self) -> None:
        """Until queues and index hold all that the log holds."""
        stub = self._running["gateway"].stub
        rows: dict[str, pb.ServiceStatus] = {}

        def are_built() -> bool:
            rows.update(
                (row.service, row) for row in stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
            )
            target = rows["commitlog"].log_end_offset
            return all(rows[name].next_offset >= target for name in ("consumequeue", "index"))

        wait_until(are_built, lambda: f"queues and index are not built: {rows}")

    def stop(self) -> dict[str, int]:
        """A clean end of all, against the flow; their exit codes."""
        return {
            name: self._running[name].stop()
            for name in ("gateway", "schedule", "consumer", "index", "consumequeue", "commitlog")
        }

    def close(self) -> None:
        """Whatever is left goes."""
        for running in self._running.values():
            running.__exit__(None, None, None)
        shutil.rmtree(self._sockets, ignore_errors=True)


class Writer:
    """A client of the gateway's append stream, in a thread; opens the stream again whenever it breaks."""

    def __init__(self, name: str, address: str, seed: int) -> None:
        self.acked: dict[str, Place] = {}
        self.attempted: set[str] = set()
        self._name = name
        self._random = random.Random(seed)
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the request in hand."""
        self._stopping.set()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive(), "a writer hangs"
        self._channel.close()

    def _run(self) -> None:
        stub = gateway_grpc.GatewayServiceStub(self._channel)
        while not self._stopping.is_set():
            requests: queue.SimpleQueue[pb.AppendMessageStreamRequest | None] = queue.SimpleQueue()
            call = stub.AppendMessageStream(iter(requests.get, None), wait_for_ready=True, timeout=WAIT_SECONDS_MAX)
            with contextlib.suppress(grpc.RpcError, StopIteration):
                while not self._stopping.is_set():
                    names, request = self._next_request()
                    requests.put(request)
                    response = next(call)
                    for name, result in zip(names, response.results, strict=False):
                        place = Place(result.commit_log_offset, result.queue_id, result.queue_offset)
                        self.acked[name] = place
                    self._stopping.wait(PACE_SECONDS)
            requests.put(None)
            call.cancel()

    def _next_request(self) -> tuple[list[str], pb.AppendMessageStreamRequest]:
        names = [f"{self._name}-{len(self.attempted) + n}" for n in range(self._random.randrange(1, BATCH_MAX + 1))]
        self.attempted.update(names)
        messages = [
            message_pb2.NewMessage(
                topic=self._random.choice(("orders", "trades")),
                body=name.encode() + b"|" + bytes(self._random.randrange(300)),
                keys=[f"key{self._random.randrange(50)}"],
                tags=self._random.choice(("", "red")),
                unique_key=f"U{name}",
            )
            for name in names
        ]
        return names, pb.AppendMessageStreamRequest(messages=messages, flush=message_pb2.FLUSH_MODE_SYNC)


@contextlib.contextmanager
def all_services(store: Path, settings: Mapping[str, str] | None = None) -> Iterator[Services]:
    services = Services(store, settings)
    try:
        yield services
    finally:
        services.close()


def wait_for_acks(writers: list[Writer], count: int) -> None:
    """Returns when that many more messages are acknowledged."""
    target = sum(len(writer.acked) for writer in writers) + count
    wait_until(
        lambda: sum(len(writer.acked) for writer in writers) >= target,
        f"{target} acknowledgements",
        poll_seconds=0.002,
    )


def test_random_kills_of_any_service_lose_nothing_acknowledged(tmp_path: Path) -> None:
    seed = pick_seed("random-kills")
    chance = random.Random(seed)
    kills_left = amount(sample=3, change=40, full=2000)
    acks_max = 1200 if level() == "full" else 120  # a release sees a million
    kill_count = ack_count = 0
    begun = time.monotonic()
    while kills_left > 0:
        store = tmp_path / f"store-{kill_count}"
        with all_services(store) as services:
            writers = [Writer(f"w{n}", services.gateway, seed + n) for n in range(WRITER_COUNT)]
            for _ in range(KILLS_PER_STORE):
                wait_for_acks(writers, chance.randrange(1, acks_max))
                time.sleep(chance.random() * 0.01)  # not only just behind an acknowledgement
                names = tuple(chance.sample(NAMES, min(kills_left, chance.choice((1, 2, 2)))))
                services.kill(names)
                services.start(names)
                kill_count += len(names)
                kills_left -= len(names)
                if kills_left <= 0:
                    break
            wait_for_acks(writers, 20)
            for writer in writers:
                writer.stop()
            services.wait_until_built()
            assert services.stop() == dict.fromkeys(NAMES, 0)
        acked = {name: place for writer in writers for name, place in writer.acked.items()}
        attempted = {name for writer in writers for name in writer.attempted}
        problems = check_store(store, acked=acked, attempted=attempted, layout=LAYOUT)
        assert not problems, f"seed {seed}, after {kill_count} kills:\n" + "\n".join(problems)
        ack_count += len(acked)
        shutil.rmtree(store)
    seconds = time.monotonic() - begun
    print(f"{kill_count} kills, {ack_count} acknowledged, 0 lost, {seconds:.0f} s")
