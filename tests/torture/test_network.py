"""A network that misbehaves between our services (row 13 of docs/durability.md): nothing is lost, doubled or made up.

Builders follow the log through links that are slowed, cut in the middle of a message, reset, silent or down; afterwards
queues and index must equal what builders make that never saw a network. Meanwhile a gateway behind such links may be
late, partial or unavailable, but never wrong, and never complete with something missing.
"""

import contextlib
import pathlib
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1 import message_pb2
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed
from tests.torture.tools.toxiproxy import MISSING, Link, Toxiproxy, binary

pytestmark = pytest.mark.skipif(binary() is None, reason=MISSING)

TOPIC = "net"
QUEUE_COUNT = 4
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": str(20 * 300),
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "100000",
}
# While a service cannot be reached.
HONEST_CODES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}

TOXICS: dict[str, Callable[[Link, random.Random], contextlib.AbstractContextManager[None]]] = {
    "limit_data": lambda link, dice: link.toxic("limit_data", bytes=dice.randint(100, 20_000)),
    "down": lambda link, dice: link.down(),
    "reset_peer": lambda link, dice: link.toxic("reset_peer", timeout=dice.randint(0, 200)),
    "black_hole": lambda link, dice: link.toxic("timeout", timeout=0),
    "timeout": lambda link, dice: link.toxic("timeout", timeout=dice.randint(50, 500)),
    "latency": lambda link, dice: link.toxic("latency", latency=dice.randint(50, 400), jitter=50),
    "bandwidth": lambda link, dice: link.toxic("bandwidth", rate=dice.randint(5, 50)),
    "slicer": lambda link, dice: link.toxic("slicer", average_size=dice.randint(8, 200), size_variation=7, delay=500),
}
KINDS = list(TOXICS)[: amount(sample=2, change=len(TOXICS), full=len(TOXICS))]
ROUND_COUNT = amount(sample=1, change=1, full=50)
FAULT_SECONDS = amount(sample=1, change=1, full=3)


class Load:
    """Appends without a pause; remembers what was acknowledged."""

    def __init__(self, service: Service) -> None:
        self.results: list[message_pb2.AppendResult] = []
        self._stub = service.stub
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            first = len(self.results)
            messages = [
                message_pb2.NewMessage(
                    topic=TOPIC, queue_id=number % QUEUE_COUNT, body=b"%08d" % number, keys=[f"k{number}", "all"]
                )
                for number in range(first, first + 10)
            ]
            self.results += self._stub.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=60).results
            self._stop.wait(0.03)

    def stop(self) -> None:
        """No more."""
        self._stop.set()
        self._thread.join()


class Builders:
    """The two builders on one store, each behind a link to the log."""

    def __init__(self, store: pathlib.Path, log_address: dict[str, str]) -> None:
        settings = {name: SETTINGS | {"REPUT_COMMITLOG_TARGET": address} for name, address in log_address.items()}
        self.queues = Service("consumequeue", store, settings["consumequeue"], wait="answering")
        try:
            self.index = Service("index", store, settings["index"], wait="answering")
        except BaseException:
            self.queues.kill()
            raise

    def wait_until_built(self, offset: int) -> None:
        """Return once both have applied the log up to an offset."""
        for service, request in ((self.queues, queue_pb.GetStatusRequest()), (self.index, index_pb.GetStatusRequest())):

            def is_built(service: Service = service, request: Any = request) -> bool:
                status = service.stub.GetStatus(request, timeout=WAIT_SECONDS_MAX)
                return status.next_offset >= offset and not status.catching_up

            wait_until(is_built, f"{service.name} stays behind {offset}")

    def end(self) -> None:
        """Both, cleanly: everything is on the disk."""
        assert self.queues.stop() == 0
        assert self.index.stop() == 0

    def __enter__(self) -> "Builders":
        return self

    def __exit__(self, *_: object) -> None:
        self.queues.kill()
        self.index.kill()


def queue_bytes(store: pathlib.Path) -> dict[str, bytes]:
    """Every queue file by its path."""
    root = store / "consumequeue"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def index_bytes(store: pathlib.Path) -> list[bytes]:
    """Every index file, oldest first; their names are times of the clock."""
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


def flushed_offset(log: Service) -> int:
    """The end of the log, all of it flushed."""
    while True:
        status = log.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
        if status.log_flushed_offset == status.log_end_offset:
            return int(status.log_end_offset)


def test_builders_behind_a_bad_network_build_what_builders_without_one_do(tmp_path: pathlib.Path) -> None:
    dice = random.Random(pick_seed("bad network for builders"))
    store = tmp_path / "store"
    with Toxiproxy() as toxiproxy, Service("commitlog", store, SETTINGS) as log:
        links = {name: toxiproxy.link(name, log.address) for name in ("consumequeue", "index")}
        load = Load(log)
        with Builders(store, {name: link.address for name, link in links.items()}) as builders:
            for round_number in range(ROUND_COUNT):
                for kind in KINDS:
                    with contextlib.ExitStack() as faults:
                        for link in links.values():
                            faults.enter_context(TOXICS[kind](link, dice))
                        time.sleep(FAULT_SECONDS * dice.uniform(0.5, 1.0))  # how long the fault lasts is what is tested
                    if round_number == 0:
                        builders.wait_until_built(flushed_offset(log))
            load.stop()
            builders.wait_until_built(flushed_offset(log))
            builders.end()

        rebuilt = tmp_path / "rebuilt"
        shutil.copytree(store / "commitlog", rebuilt / "commitlog")
        with Builders(rebuilt, dict.fromkeys(links, log.address)) as builders:
            builders.wait_until_built(flushed_offset(log))
            builders.end()

    assert queue_bytes(store) == queue_bytes(rebuilt)
    assert index_bytes(store) == index_bytes(rebuilt)
    units = b"".join(data for _, data in sorted(queue_bytes(store).items()) if data)
    offsets = [int.from_bytes(units[at : at + 8], "big") for at in range(0, len(units), 20) if any(units[at : at + 20])]
    assert sorted(offsets) == sorted(result.commit_log_offset for result in load.results), "a gap or a double"


@contextlib.contextmanager
def whole_stack(store: pathlib.Path, toxiproxy: Toxiproxy) -> Iterator[tuple[Service, dict[str, Link], Service]]:
    """A gateway whose three services are behind links."""
    with Service("commitlog", store, SETTINGS) as log:
        log_address = dict.fromkeys(("consumequeue", "index"), log.address)
        with Builders(store, log_address) as builders:
            links = {
                "commitlog": toxiproxy.link("g-commitlog", log.address),
                "consumequeue": toxiproxy.link("g-consumequeue", builders.queues.address),
                "index": toxiproxy.link("g-index", builders.index.address),
            }
            targets = {f"REPUT_{name.upper()}_TARGET": link.address for name, link in links.items()}
            with Service("gateway", store, targets) as gateway:
                yield log, links, gateway


class Truth:
    """What was stored, and questions whose answers it can judge."""

    def __init__(self, results: list[message_pb2.AppendResult]) -> None:
        self.results = results

    def ask(self, gateway: Service, dice: random.Random, seconds: float) -> str:
        """One random question; how it was answered: `complete`, `partial` or the code. Fails on a wrong answer."""
        number = dice.randrange(len(self.results))
        asked = dice.choice((self._by_key, self._by_offset, self._by_id, self._by_unique_key))
        try:
            return asked(gateway, number, seconds)
        except grpc.RpcError as error:
            if error.code() not in HONEST_CODES:
                raise
            return str(error.code().name)

    def _by_key(self, gateway: Service, number: int, seconds: float) -> str:
        request = gateway_pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"k{number}")
        answer = gateway.stub.QueryMessageByKey(request, timeout=seconds)
        return self._judge(answer.messages, answer.completeness, number)

    def _by_unique_key(self, gateway: Service, number: int, seconds: float) -> str:
        request = gateway_pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=self.results[number].unique_key)
        answer = gateway.stub.QueryMessageByUniqueKey(request, timeout=seconds)
        return self._judge(answer.messages, answer.completeness, number)

    def _by_offset(self, gateway: Service, number: int, seconds: float) -> str:
        result = self.results[number]
        request = gateway_pb.QueryMessageByOffsetRequest(
            topic=TOPIC, queue_id=result.queue_id, queue_offset=result.queue_offset, max_messages=1
        )
        answer = gateway.stub.QueryMessageByOffset(request, timeout=seconds)
        return self._judge(answer.messages, answer.completeness, number)

    def _by_id(self, gateway: Service, number: int, seconds: float) -> str:
        request = gateway_pb.QueryMessageByIdRequest(offset_msg_id=self.results[number].offset_msg_id)
        answer = gateway.stub.QueryMessageById(request, timeout=seconds)
        return self._judge([answer.message], message_pb2.COMPLETENESS_COMPLETE, number)

    @staticmethod
    def _judge(messages: list[message_pb2.StoredMessage], completeness: int, number: int) -> str:
        bodies = [message.body for message in messages if not message.body_omitted]
        if completeness == message_pb2.COMPLETENESS_PARTIAL:
            assert bodies in ([], [b"%08d" % number])
            return "partial"
        assert bodies == [b"%08d" % number], "complete, and not what was stored"
        return "complete"


def test_a_gateway_behind_a_bad_network_is_late_partial_or_unavailable_and_never_wrong(tmp_path: pathlib.Path) -> None:
    dice = random.Random(pick_seed("bad network for a gateway"))
    seen: dict[str, int] = {}
    with Toxiproxy() as toxiproxy, whole_stack(tmp_path / "store", toxiproxy) as (log, links, gateway):
        load = Load(log)
        wait_until(lambda: len(load.results) >= 500, "500 results")
        load.stop()
        wait_until_answered(gateway, load.results)
        truth = Truth(load.results)
        for _ in range(ROUND_COUNT):
            for kind in KINDS:
                for name, link in links.items():
                    with TOXICS[kind](link, dice):
                        until = time.monotonic() + FAULT_SECONDS / 2
                        while time.monotonic() < until:
                            outcome = truth.ask(gateway, dice, seconds=1.0)
                            seen[f"{kind} {name} {outcome}"] = seen.get(f"{kind} {name} {outcome}", 0) + 1
                    wait_until_answered(gateway, load.results)
    print(seen)

    assert any("complete" in key for key in seen)
    assert any("UNAVAILABLE" in key or "partial" in key for key in seen)


def wait_until_answered(gateway: Service, results: list[message_pb2.AppendResult]) -> None:
    """Return once all questions are answered in full again: healed links are found again without a restart."""
    truth = Truth(results)
    asked = (truth._by_key, truth._by_offset, truth._by_id, truth._by_unique_key)
    problem = ""

    def is_back() -> bool:
        nonlocal problem
        try:
            return all(ask(gateway, len(results) - 1, 5.0) == "complete" for ask in asked)
        except (grpc.RpcError, AssertionError) as error:
            problem = str(error)
            return False

    wait_until(is_back, lambda: f"the gateway does not come back: {problem}")
