"""Appends through a gateway over shards of real processes: spread, a shard that joins under load, and one that dies."""

import contextlib
import os
import pathlib
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.status import from_rpc_error
from store.errors import BrokerNotFoundError, InvalidMessageError, ServiceUnavailableError
from tests.e2e.test_shards import NAMES, TOPIC, Shard, ask, failed
from tests.support.halting import halt
from tests.support.service import Service
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

SHARDING_KEY = "__SHARDINGKEY"
POLL_SECONDS = "0.1"


class Cluster:
    """Two shards and a gateway that reads their names from a file, in which a third one can be written."""

    def __init__(self, root: pathlib.Path, processes: contextlib.ExitStack) -> None:
        self._root = root
        self._processes = processes
        self._file = root / "shards"
        self.shards: dict[str, Shard] = {}
        self._tokens: dict[str, str] = {}  # of the newest receipt of each shard
        for name in NAMES[:2]:
            self.add(name)
        settings = {
            "REPUT_GATEWAY_SHARDS_FILE": str(self._file),
            "REPUT_GATEWAY_SHARDS_POLL_SECONDS": POLL_SECONDS,
            "REPUT_GATEWAY_CONSOLE": "off",
        }
        self.gateway = processes.enter_context(Service("gateway", root, settings))

    def add(self, name: str) -> None:
        self.shards[name] = Shard(name, self._root / name, self._processes)
        self.write(*[shard.targets for shard in self.shards.values()])

    def write(self, *lines: str) -> None:
        scratch = self._file.with_suffix(".new")
        scratch.write_text("\n".join(["# the shards", *lines, ""]))
        scratch.replace(self._file)

    def append(
        self, *messages: message_pb2.NewMessage, seconds: float = WAIT_SECONDS_MAX, **fields: object
    ) -> list[str]:
        """The shard of each receipt."""
        request = pb.AppendMessagesRequest(messages=messages, **fields)
        receipts = self.gateway.stub.AppendMessages(request, timeout=seconds).results
        self._tokens |= {receipt.broker_name: receipt.freshness_token for receipt in receipts}
        return [receipt.broker_name for receipt in receipts]

    def refusal(self, *messages: message_pb2.NewMessage, **fields: object) -> Exception:
        with pytest.raises(grpc.RpcError) as refused:
            self.append(*messages, **fields)
        return from_rpc_error(refused.value)

    def status(self) -> list[pb.GetStatusResponse.ServiceStatus]:
        return list(self.gateway.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services)

    def bodies(self, key: str) -> list[bytes]:
        """All messages with the key, once every shard has indexed what was appended."""
        while True:
            found, token = [], ""
            while True:
                request = pb.QueryMessageByKeyRequest(
                    topic=TOPIC, key=key, page_size=500, page_token=token, freshness_tokens=self._tokens.values()
                )
                answer = self.gateway.stub.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
                found += [message.body for message in answer.messages]
                token = answer.next_page_token
                if not token:
                    break
            if answer.completeness == message_pb2.COMPLETENESS_COMPLETE:
                return found


class SlowProxy:
    """Passes bytes on to an address; what comes back is late by `late_seconds`, each piece of it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._behind = (host, int(port))
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.late_seconds = 0.0
        self._open: list[socket.socket] = []
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> "SlowProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for one in (self._door, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._door, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._door.accept()
            except OSError:
                return
            try:
                behind = socket.create_connection(self._behind)
            except OSError:
                caller.close()
                continue
            self._open += [caller, behind]
            for source, sink, is_answer in ((caller, behind, False), (behind, caller, True)):
                self._threads.append(threading.Thread(target=self._pass_on, args=(source, sink, is_answer)))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if is_answer:
                    self._closed.wait(self.late_seconds)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as processes:
        yield Cluster(tmp_path, processes)


def message(number: int, key: str = "", **fields: object) -> message_pb2.NewMessage:
    properties = {SHARDING_KEY: key} if key else {}
    return new_message(TOPIC, b"%d" % number, keys=["all"], properties=properties, **fields)


def test_appends_spread_and_what_has_a_place_goes_there(cluster: Cluster) -> None:
    turns = [cluster.append(message(number), message(number)) for number in range(8)]
    assert all(len(set(names)) == 1 for names in turns), "a batch goes to one shard"
    assert Counter(names[0] for names in turns) == {"shard-a": 4, "shard-b": 4}

    keys = [f"key-{number}" for number in range(20)]
    first = cluster.append(*[message(100 + number, key) for number, key in enumerate(keys)])
    assert set(first) == {"shard-a", "shard-b"}
    assert [cluster.append(message(200 + number, key))[0] for number, key in enumerate(keys)] == first
    assert len({cluster.append(message(300 + number, queue_id=3))[0] for number in range(6)}) == 1

    assert cluster.append(message(400, keys[0]), broker_name="shard-b") == ["shard-b"]
    assert isinstance(cluster.refusal(message(0), broker_name="shard-z"), BrokerNotFoundError)
    with_bad = [message(500 + number, key) for number, key in enumerate(keys)]
    with_bad[13].body = b""
    error = cluster.refusal(*with_bad)
    assert isinstance(error, InvalidMessageError)
    assert error.metadata["index"] == "13"

    again = [message(600 + number, unique_key=f"unique-{number}") for number in range(5)]
    homes = [cluster.append(*again, deduplicate=True) for _ in range(4)]
    assert all(names == homes[0] for names in homes)
    expected = [*range(8), *range(8), *range(100, 120), *range(200, 220), *range(300, 306), 400, *range(600, 605)]
    assert sorted(map(int, cluster.bodies("all"))) == sorted(expected)

    requests = [pb.AppendMessageStreamRequest(messages=[message(700 + number, "one")]) for number in range(30)]
    requests[10:10] = [pb.AppendMessageStreamRequest(messages=[message(0).__class__(topic=TOPIC)])]
    answers = list(cluster.gateway.stub.AppendMessageStream(iter(requests), timeout=WAIT_SECONDS_MAX))
    assert [number for number, answer in enumerate(answers) if answer.HasField("error")] == [10]
    placed = [answer.results[0] for answer in answers if answer.results]
    assert len({(result.broker_name, result.queue_id) for result in placed}) == 1
    assert [result.queue_offset for result in placed] == list(
        range(placed[0].queue_offset, placed[0].queue_offset + len(placed))
    )


def test_a_shard_joins_under_load_and_one_that_dies_stops_no_other_append(cluster: Cluster) -> None:
    """Without a restart of the gateway, and every acknowledged message is found once."""
    acknowledged: dict[int, str] = {}
    failures: list[grpc.RpcError] = []
    is_over, has_new, number = threading.Event(), threading.Event(), 0

    def write() -> None:
        nonlocal number
        while not is_over.is_set():
            number += 1
            try:
                (acknowledged[number],) = cluster.append(message(number))
            except grpc.RpcError as error:
                failures.append(error)
            if acknowledged.get(number) == "shard-c":
                has_new.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        cluster.add("shard-c")
        assert has_new.wait(WAIT_SECONDS_MAX)
        assert set(acknowledged.values()) == set(NAMES)
        assert not failures

        cluster.shards["shard-b"].log.kill()
        begin = len(acknowledged)
        while len(acknowledged) < begin + 100 and len(failures) < 100:
            is_over.wait(0.01)
    finally:
        is_over.set()
        writer.join()

    # The call that was under way may have been written: it fails. All later ones find another shard.
    assert len(failures) <= 1
    assert all(isinstance(from_rpc_error(failure), ServiceUnavailableError) for failure in failures)
    assert Counter(list(acknowledged.values())[begin + 2 :]).keys() == {"shard-a", "shard-c"}
    pinned = cluster.refusal(message(0), broker_name="shard-b")
    assert pinned.metadata["notSent"] == "true"

    address = cluster.shards["shard-b"].log.address
    shard = cluster.shards["shard-b"]
    with Service("commitlog", shard.store, {**shard.settings, "REPUT_COMMITLOG_ADDRESS": address}):
        found = Counter(map(int, cluster.bodies("all")))
    assert [one for one in acknowledged if found[one] != 1] == []
    # What was not acknowledged may be there, once.
    assert set(found) - set(acknowledged) <= set(range(1, number + 1))
    assert max(found.values()) == 1


def test_a_shard_that_moves_is_slow_and_is_killed_in_the_middle_of_a_query(cluster: Cluster) -> None:
    numbers = range(6)
    for one in numbers:
        cluster.append(message(one))
    assert sorted(map(int, cluster.bodies("all"))) == list(numbers)
    whole, of_a = [5, 4, 3, 2, 1, 0], [4, 2, 0]
    shard = cluster.shards["shard-b"]
    with SlowProxy(shard.index.address) as proxy:
        moved = f"shard-b={shard.log.address},{shard.queues.address},{proxy.address}"
        cluster.write(cluster.shards["shard-a"].targets, moved)
        wait_until(lambda: proxy.address in {row.address for row in cluster.status()}, "the gateway knows where it is")
        proxy.late_seconds = 0.3
        assert bodies_of(ask(cluster.gateway)) == (message_pb2.COMPLETENESS_COMPLETE, [], whole)
        proxy.late_seconds = 6.0
        late = ask(cluster.gateway, seconds=3)
        assert bodies_of(late) == (message_pb2.COMPLETENESS_PARTIAL, ["shard-b"], of_a)
        proxy.late_seconds = 0.0
        while (answer := ask(cluster.gateway)).completeness != message_pb2.COMPLETENESS_COMPLETE:
            assert failed(answer) == ["shard-b"]
        assert bodies_of(answer)[2] == whole

        halt(shard.index.pid)  # so that the query waits for it
        pending = cluster.gateway.stub.QueryMessageByKey.future(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key="all"), timeout=WAIT_SECONDS_MAX
        )
        with pytest.raises(grpc.FutureTimeoutError):
            pending.result(timeout=0.3)
        os.kill(shard.index.pid, signal.SIGKILL)
        assert bodies_of(pending.result()) == (message_pb2.COMPLETENESS_PARTIAL, ["shard-b"], of_a)
        assert failed(ask(cluster.gateway)) == ["shard-b"], "it is asked again, and named again"


def bodies_of(answer: pb.QueryMessageByKeyResponse) -> tuple[int, list[str], list[int]]:
    return answer.completeness, failed(answer), [int(one.body) for one in answer.messages]
