"""Shards that join, move and vanish while a gateway runs: what is known stays known."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
import structlog

from gateway.__main__ import find_shards
from gateway.appends.routes import RouteWatch
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, topics_of
from gateway.settings import GatewaySettings
from gateway.shards.directory import ShardDirectory
from gateway.shards.discovery import (
    ORDINAL_AHEAD_COUNT,
    RETIRED_SECONDS,
    Discovery,
    ShardFile,
    ShardOrdinals,
    ShardSource,
)
from gateway.shards.remote import commitlog_answers, open_shard
from gateway.shards.targets import ShardTargets, parse_template
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidSettingError, ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard
from tests.support.dns_server import DnsServer
from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX

TEMPLATE = parse_template("broker-{i}=log-{i}:1,queue-{i}:2,index-{i}:3")


@dataclass
class Opened:
    targets: ShardTargets
    shard: Shard
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


@dataclass
class World:
    """A directory over shards in memory, and what it did."""

    directory: ShardDirectory[Opened]
    opened: list[Opened] = field(default_factory=list)
    changes: list[list[str]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    is_change_refused: bool = False
    discovery: Discovery = field(default_factory=lambda: Discovery(0.001))

    def names(self) -> list[str]:
        return [shard.broker_name for shard in self.directory.now()]


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def world(fan_out, now) -> Iterator[World]:
    discovery = Discovery(0.001, clock=lambda: now[0])

    def open_memory_shard(targets: ShardTargets) -> Opened:
        if not world.is_change_refused and world.failures:
            raise world.failures.pop()
        world.opened.append(Opened(targets, MemoryShard([]).shard(targets.broker_name)))
        return world.opened[-1]

    def changed(opened: Sequence[Opened]) -> None:
        if world.is_change_refused and world.failures:
            raise world.failures.pop()
        world.changes.append([one.targets.broker_name for one in opened])

    directory = ShardDirectory(open_memory_shard, fan_out, retire=discovery.retire, changed=changed)
    world = World(directory, discovery=discovery)
    yield world
    discovery.stop()


def test_a_file_that_grows_brings_shards_and_one_that_shrinks_takes_none_away(world, tmp_path):
    path = tmp_path / "shards"
    source = ShardFile(path)
    path.write_text("a=a:1,a:2,a:3\nb=b:1,b:2,b:3")
    world.discovery.look(source, world.directory)
    snapshot = world.directory.now()
    assert world.names() == ["a", "b"]

    path.write_text("c=c:1,c:2,c:3")
    world.discovery.look(source, world.directory)

    assert world.names() == ["a", "b", "c"]
    assert [shard.broker_name for shard in snapshot] == ["a", "b"], "a query under way is not disturbed"
    world.discovery.look(source, world.directory)
    assert len(world.opened) == 3, "what has not changed stays open"
    assert world.changes == [["a", "b"], ["a", "b", "c"]]


def test_a_shard_that_moves_is_opened_anew_and_the_old_one_closed_once_its_calls_have_ended(world, tmp_path, now):
    path = tmp_path / "shards"
    path.write_text("a=a:1,a:2,a:3\nb=b:1,b:2,b:3")
    source = ShardFile(path)
    world.discovery.look(source, world.directory)
    path.write_text("b=elsewhere:1,b:2,b:3")
    world.discovery.look(source, world.directory)

    assert world.names() == ["a", "b"]
    assert world.opened[2].targets.commitlog == "elsewhere:1"
    assert not world.opened[1].is_closed
    now[0] = RETIRED_SECONDS
    world.discovery.look(source, world.directory)
    assert [one.is_closed for one in world.opened] == [False, True, False]


@pytest.mark.parametrize("text", [None, "", "nonsense", "a=1,2"])
def test_a_file_that_makes_no_sense_changes_nothing_and_is_told_once(world, tmp_path, text):
    path = tmp_path / "shards"
    path.write_text("a=a:1,a:2,a:3")
    source = ShardFile(path)
    world.discovery.look(source, world.directory)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)

    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            world.discovery.look(source, world.directory)

    assert world.names() == ["a"]
    assert [line["event"] for line in lines] == ["shards.unreadable"]
    with pytest.raises(InvalidSettingError):
        source.look()  # at the start it is the end


def test_ordinals_that_answer_join_with_all_below_them(world):
    answering: set[str] = set()
    source = ShardOrdinals(TEMPLATE, 1, 100, lambda targets: targets.broker_name in answering)
    world.directory.keep([TEMPLATE[0].of_ordinal(0)])
    world.discovery.look(source, world.directory)
    assert world.names() == ["broker-0"]

    answering.add("broker-3")  # 1 and 2 are there, too, and are down
    world.discovery.look(source, world.directory)
    assert world.names() == ["broker-0", "broker-1", "broker-2", "broker-3"]

    answering.clear()
    world.discovery.look(source, world.directory)
    assert world.names() == ["broker-0", "broker-1", "broker-2", "broker-3"], "who vanishes stays known"


def test_an_ordinal_whose_replicas_answer_is_found_with_all_of_its_replicas():
    template = parse_template("b-{i}@r0=l0-{i}:1,q0-{i}:2,i0-{i}:3;b-{i}@r1=l1-{i}:1,q1-{i}:2,i1-{i}:3")
    answering = {"l1-2:1"}  # one replica of shard 2; shard 1 is there, too, and is down
    source = ShardOrdinals(template, 1, 100, lambda targets: targets.commitlog in answering)

    found = source.look()

    assert [(one.broker_name, one.replica) for one in found] == [(f"b-{n}", f"r{r}") for n in (1, 2) for r in (0, 1)]
    assert [one.commitlog for one in found] == ["l0-1:1", "l1-1:1", "l0-2:1", "l1-2:1"]
    source.kept(found)
    assert source.look() == ()
    answering.add("l0-4:1")
    assert {one.broker_name for one in source.look()} == {"b-3", "b-4"}, "both shards are known now"


@pytest.mark.parametrize("is_change_refused", [False, True])
@pytest.mark.parametrize("kind", ["file", "ordinals"])
def test_a_shard_that_could_not_be_taken_in_is_taken_in_by_the_next_look(world, tmp_path, kind, is_change_refused, now):
    """Too many open files, say: neither the shard nor the one beside it is lost, and none is opened twice."""
    names = [f"broker-{number}" for number in range(3)]
    if kind == "file":
        path = tmp_path / "shards"
        path.write_text("\n".join(f"{name}=log-{name[-1]}:1,queue-{name[-1]}:2,index-{name[-1]}:3" for name in names))
        source: ShardSource = ShardFile(path)
    else:
        source = ShardOrdinals(TEMPLATE, 1, 100, lambda targets: targets.broker_name in names)
    world.directory.keep([TEMPLATE[0].of_ordinal(0)])
    snapshot = world.directory.now()
    world.is_change_refused = is_change_refused
    world.failures += [OSError("too many open files"), OSError("too many open files")]
    for _ in range(2):
        world.discovery.look(source, world.directory)
        assert world.directory.now() is snapshot

    world.discovery.look(source, world.directory)

    assert world.names() == names
    assert world.changes[-1] == names
    assert [one.targets.broker_name for one in world.opened] == names
    now[0] = RETIRED_SECONDS
    world.discovery.look(source, world.directory)
    assert not any(one.is_closed for one in world.opened)


def test_what_was_opened_for_a_shard_that_moved_before_it_was_taken_in_is_closed(world, tmp_path, now):
    path = tmp_path / "shards"
    source = ShardFile(path)
    world.is_change_refused = True
    world.failures.append(OSError("too many open files"))
    for place in ("here", "there"):
        path.write_text(f"a={place}:1,a:2,a:3")
        world.discovery.look(source, world.directory)
    now[0] = RETIRED_SECONDS
    world.discovery.look(source, world.directory)

    assert world.names() == ["a"]
    assert [(one.targets.commitlog, one.is_closed) for one in world.opened] == [("here:1", True), ("there:1", False)]


def test_a_close_that_fails_does_not_end_the_looks(world, now):
    def fail() -> None:
        raise OSError("no")

    world.discovery.retire(fail)
    now[0] = RETIRED_SECONDS
    source = ShardOrdinals(TEMPLATE, 0, 1, lambda targets: True)
    for _ in range(2):
        world.discovery.look(source, world.directory)

    assert world.names() == ["broker-0"]


def test_a_look_that_ends_after_the_stop_opened_shards_that_nobody_closed(world, tmp_path, now):
    path = tmp_path / "shards"
    path.write_text("a=a:1,a:2,a:3")
    source = ShardFile(path)
    world.discovery.look(source, world.directory)
    world.directory.close()

    path.write_text("a=elsewhere:1,a:2,a:3\nb=b:1,b:2,b:3")
    world.discovery.look(source, world.directory)

    assert [(one.targets.commitlog, one.is_closed) for one in world.opened] == [("a:1", True)]


def test_what_a_moved_shard_left_behind_was_not_closed_by_a_stop_before_its_time(world):
    closed = []

    def fail() -> None:
        closed.append("failed")
        raise OSError("no")

    world.discovery.retire(fail)
    world.discovery.retire(lambda: closed.append("before"))
    world.discovery.stop()
    world.discovery.retire(lambda: closed.append("after"))

    assert closed == ["failed", "before", "after"]


def test_who_asks_for_topics_is_woken_when_the_new_shard_can_be_asked(fan_out, tmp_path, monkeypatch):
    seen: list[list[str]] = []

    class Watch(RouteWatch):
        def __init__(self, source: Any, routes: Any) -> None:
            super().__init__(source, routes)
            self.names = lambda: [shard.broker_name for shard in source.now()]

        def start(self) -> None:
            pass

        def wake(self) -> None:
            seen.append(self.names())

    looks: list[tuple[ShardSource, ShardDirectory[Any]]] = []
    monkeypatch.setattr("gateway.__main__.RouteWatch", Watch)
    monkeypatch.setattr(Discovery, "start", lambda self, *arguments: looks.append(arguments))
    path = tmp_path / "shards"
    path.write_text("a=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    server = ServiceServer("gateway", ServiceSettings())
    directory, forwarder, _ = find_shards(server, GatewaySettings(shards_file=path), fan_out, open_shard)
    try:
        with path.open("a") as file:
            file.write("\nb=127.0.0.2:1,127.0.0.2:2,127.0.0.2:3")
        ((source, _),) = looks
        directory.keep(source.look())
    finally:
        forwarder.close()
        for one in directory._open.values():
            one.close()

    assert seen == [["a"], ["a", "b"]]


def test_ordinals_are_looked_for_only_so_far_ahead_and_below_the_limit():
    asked: list[str] = []

    def never(targets: ShardTargets) -> bool:
        asked.append(targets.broker_name)
        return False

    ShardOrdinals(TEMPLATE, 3, 1_000, never).look()
    assert asked == [f"broker-{3 + number}" for number in range(ORDINAL_AHEAD_COUNT)]
    asked.clear()
    ShardOrdinals(TEMPLATE, 3, 4, never).look()
    assert asked == ["broker-3"]


def test_discovery_looks_by_itself_until_it_is_stopped(world):
    looks = threading.Semaphore(0)

    class Source:
        def look(self):
            looks.release()
            return [TEMPLATE[0].of_ordinal(0)]

        def kept(self, found):
            pass

    world.discovery.start(Source(), world.directory)

    for _ in range(3):
        assert looks.acquire(timeout=WAIT_SECONDS_MAX)
    assert world.names() == ["broker-0"]


class NamedLog(pb_grpc.CommitLogServiceServicer):
    def __init__(self, name: str) -> None:
        self.name = name

    def GetStatus(self, request, context):
        return pb.GetStatusResponse(broker_name=self.name)

    def ListTopics(self, request, context):
        return pb.ListTopicsResponse(topics=[pb.ListTopicsResponse.Topic(topic=self.name, write_queue_count=1)])


@contextlib.contextmanager
def named_log(name: str, address: str = "127.0.0.1:0") -> Iterator[str]:
    server = ServiceServer("commitlog", ServiceSettings(address=address, worker_count=4))
    server.add("reput.commitlog.v1.CommitLogService", pb_grpc.add_CommitLogServiceServicer_to_server, NamedLog(name))
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        yield server.address
    finally:
        server.stop()
        ended.join()


def test_a_shard_is_there_when_its_commitlog_says_its_name(tmp_path):
    with named_log("broker-1") as address:
        assert commitlog_answers(ShardTargets("broker-1", address, "-", "-"))
        # A zone that answers for every name, or two pods that were given one name.
        assert not commitlog_answers(ShardTargets("broker-2", address, "-", "-"))
    assert not commitlog_answers(ShardTargets("broker-1", f"127.0.0.1:{free_port()}", "-", "-"))
    assert not commitlog_answers(ShardTargets("broker-1", f"unix:{tmp_path}/none", "-", "-"))


def test_a_name_is_followed_to_another_address():
    """As when a pod comes back: the name stays, the address does not."""
    port = free_port()
    with DnsServer() as dns:
        dns.addresses["log-0.shards"] = "127.0.0.1"
        target = dns.target("log-0.shards", port)
        opened = open_shard(ShardTargets("broker-0", target, target, target))

        def topics() -> list[str]:
            return list(topics_of(opened.shard, Deadline.after(WAIT_SECONDS_MAX)))

        with named_log("first", f"127.0.0.1:{port}"):
            assert topics() == ["first"]
        with pytest.raises(ServiceUnavailableError):
            topics_of(opened.shard, Deadline.after(0.5))
        dns.addresses["log-0.shards"] = "127.0.0.2"
        with named_log("second", f"127.0.0.2:{port}"):
            deadline = Deadline.after(WAIT_SECONDS_MAX)
            while True:
                try:
                    found = topics()
                    break
                except ServiceUnavailableError:
                    deadline.remaining_seconds()
            assert found == ["second"]
        opened.close()


def test_an_ordinal_is_found_by_dns_once_its_name_is_there():
    with DnsServer() as dns, named_log("broker-1") as address:
        port = int(address.rpartition(":")[2])
        targets = ShardTargets("broker-1", dns.target("log-1.shards", port), "-", "-")
        assert not commitlog_answers(targets)
        dns.addresses["log-1.shards"] = "127.0.0.1"
        assert commitlog_answers(targets)
        assert "log-1.shards" in dns.asked


def test_grpc_resolves_names_by_the_resolver_that_knows_authorities():
    """The tests above say nothing when gRPC asks the system instead."""
    with DnsServer() as dns, grpc.insecure_channel(dns.target("nowhere.shards", 1)) as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/none/None")(b"", timeout=WAIT_SECONDS_MAX)
        assert "nowhere.shards" in dns.asked
