"""A shard at name servers: ours in this process, and some that die, hang, refuse or talk nonsense."""

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

import commitlog_svc.nameservers
from commitlog_svc.broker_address import DOOR_SECONDS_MAX, KnownOnce
from commitlog_svc.nameservers import (
    LEAD_SECONDS,
    NAMESERVER_COUNT_MAX,
    READ_COUNT_MAX,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    NameServers,
    Topics,
    parse_nameservers,
)
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.rocketmq.address import Address, NameServer
from services.rocketmq.command import Command, encode
from services.rocketmq.fastjson import loads
from services.rocketmq.registration import Registration, decode_registration
from services.rocketmq.remoting_server import Connection, RemotingServer
from services.settings.certificates import client_context
from store.errors import InvalidArgumentError
from store.format.topic import DataVersion, TopicConfig
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.service import hosted_service
from tests.support.waiting import wait_until

FIELDS = {"clusterName": "c", "brokerName": "a", "brokerAddr": "10.0.0.1:10911", "haServerAddr": ""}


class FakeNameServer:
    """Notes what it is told, and answers what it is set to."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.told: list[tuple[int, Registration | None]] = []
        self.answers = True
        self.code = 0
        self.fields: dict[str, str] = {}
        self.connections: list[Connection] = []
        self.server = RemotingServer("fake-nameserver", self, lambda: tls, tls_only=tls is not None)
        self.address = NameServer(self.server.listen(Address("127.0.0.1", port)), tls is not None)
        self.server.start()

    def on_command(self, connection: Connection, command: Command) -> None:
        registration = decode_registration(command.fields, command.body) if command.code == 103 else None
        self.told.append((command.code, registration))
        if connection not in self.connections:
            self.connections.append(connection)
        if self.answers:
            connection.tell(Command(905))  # what real ones tell brokers between answers
            connection.answer(command, command.answer(self.code, "not now" if self.code else "", fields=self.fields))

    def on_close(self, connection: Connection) -> None:
        self.connections.remove(connection)

    def topics(self) -> list[set[str]]:
        return [set(registration.topics) for _, registration in self.told if registration is not None]


class Shard:
    """The topics of a shard, and whether it leads."""

    def __init__(self, *names: str) -> None:
        self.version = 1
        self.rows: dict[str, TopicConfig] = {}
        self.leads = True
        self.put(*names)

    def put(self, *names: str, queues: int = 8) -> None:
        self.rows = self.rows | {name: TopicConfig(name, queues, queues) for name in names}
        self.version += 1

    def topics(self) -> Topics:
        return Topics(DataVersion(0, 1000, self.version), self.rows)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("RETRY_SECONDS_MIN", 0.02),
        ("RETRY_SECONDS_MAX", 0.05),
        ("AGAIN_SECONDS", 0.02),
        ("LEAD_SECONDS", 0.02),
    ):
        monkeypatch.setattr(commitlog_svc.nameservers, name, seconds)


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeNameServer]]:
    with contextlib.ExitStack() as stack:

        def make(port: int = 0, tls: ssl.SSLContext | None = None) -> FakeNameServer:
            made = FakeNameServer(port, tls)
            stack.callback(made.server.close)
            return made

        yield make


@contextlib.contextmanager
def registered(
    shard: Shard,
    *addresses: NameServer,
    fields: Mapping[str, str] = FIELDS,
    ca: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[NameServers]:
    nameservers = NameServers(
        addresses, fields, shard.topics, lambda: shard.leads, clock, tls_context=partial(client_context, ca)
    )
    nameservers.start()
    try:
        yield nameservers
    finally:
        nameservers.close()


def test_all_topics_are_told_once_and_a_topic_that_changes_alone_and_at_once(
    fake: Callable[..., FakeNameServer],
) -> None:
    one, other, shard = fake(), fake(), Shard("t", "u")
    with registered(shard, one.address, other.address) as nameservers:
        wait_until(lambda: one.topics() == other.topics() == [{"t", "u"}], "the registrations")
        (_, first), *_ = one.told
        assert first is not None
        assert (first.cluster, first.name, first.broker_id, first.address) == ("c", "a", 0, "10.0.0.1:10911")
        assert first.version == DataVersion(0, 1000, 2)
        shard.put("v")
        shard.put("t", queues=4)
        nameservers.topics_changed()
        wait_until(lambda: one.topics()[1:] == [{"t"}, {"v"}], "the changes, one by one")
        assert one.told[-1][1].version.counter == 4  # type: ignore[union-attr]
        shard.put(*(f"w{number}" for number in range(17)))
        nameservers.topics_changed()
        wait_until(lambda: len(one.topics()) == 4 and len(one.topics()[-1]) == 20, "many changes, with all the others")
    assert [one.told[-1][0], other.told[-1][0]] == [104, 104]


def test_a_command_for_a_topic_is_answered_when_the_name_servers_have_taken_it(
    fake: Callable[..., FakeNameServer],
) -> None:
    one, other, shard = fake(), fake(), Shard("t")
    with registered(shard, one.address, other.address) as nameservers:
        wait_until(lambda: all(nameservers.registered().values()), "the registrations")
        for number in range(20):
            shard.put(f"u{number}")
            assert nameservers.wait_until_taken(10)
            assert one.topics()[-1] == other.topics()[-1] == {f"u{number}"}


def test_a_name_server_that_hangs_or_went_does_not_hold_the_answer_to_a_command_for_a_topic(
    fake: Callable[..., FakeNameServer],
) -> None:
    one, other, shard = fake(), fake(), Shard("t")
    with registered(shard, one.address, other.address) as nameservers:
        wait_until(lambda: all(nameservers.registered().values()), "the registrations")
        one.answers = False
        shard.put("u")
        assert not nameservers.wait_until_taken(0.05)
        wait_until(lambda: one.topics()[-1] == other.topics()[-1] == {"u"}, "both are told")
        one.server.close()
        wait_until(lambda: not nameservers.registered()[str(one.address)], "its end")
        shard.put("v")
        assert nameservers.wait_until_taken(10)
        assert other.topics()[-1] == {"v"}


def test_all_topics_are_told_again_in_time(
    fake: Callable[..., FakeNameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commitlog_svc.nameservers, "REGISTER_SECONDS", 0.05)
    one, shard = fake(), Shard("t", "u")
    with registered(shard, one.address):
        wait_until(lambda: len(one.topics()) > 3, "further registrations")
    assert set(map(frozenset, one.topics())) == {frozenset({"t", "u"})}


@pytest.mark.parametrize(
    ("changed", "codes"), [("false", [103, 322, 322, 103, 322]), ("true", [103, 322, 103, 322, 103])]
)
def test_of_many_topics_a_name_server_is_told_the_version_and_now_and_then_all(
    fake: Callable[..., FakeNameServer], monkeypatch: pytest.MonkeyPatch, changed: str, codes: list[int]
) -> None:
    for name, value in (("REGISTER_SECONDS", 0.05), ("TOPIC_COUNT_FEW", 1), ("REFRESH_COUNT", 3)):
        monkeypatch.setattr(commitlog_svc.nameservers, name, value)
    one, shard = fake(), Shard("t", "u")
    one.fields = {"changed": changed}
    with registered(shard, one.address):
        wait_until(lambda: len(one.told) >= 5, "further registrations")
    assert [code for code, _ in one.told[:5]] == codes


def test_after_a_deletion_all_of_many_topics_are_told(
    fake: Callable[..., FakeNameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("REGISTER_SECONDS", 0.2), ("TOPIC_COUNT_FEW", 1), ("REFRESH_COUNT", 1_000)):
        monkeypatch.setattr(commitlog_svc.nameservers, name, value)
    one, shard = fake(), Shard("t", "u", "v")
    one.fields = {"changed": "false"}
    with registered(shard, one.address) as nameservers:
        wait_until(lambda: one.topics() == [{"t", "u", "v"}], "the registration")
        shard.rows = {name: row for name, row in shard.rows.items() if name != "v"}
        shard.put("w")
        nameservers.topics_changed()
        wait_until(lambda: {"t", "u", "w"} in one.topics(), "all that there are")


def test_all_topics_are_not_told_for_each_of_many_changes(fake: Callable[..., FakeNameServer]) -> None:
    one, shard = fake(), Shard("t")
    seconds = [0.0]

    def on_command(connection: Connection, command: Command, take: Callable[..., None] = one.on_command) -> None:
        seconds[0] += 0.5  # what a registration takes
        take(connection, command)

    one.on_command = on_command  # type: ignore[method-assign]
    with registered(shard, one.address, clock=lambda: seconds[0]) as nameservers:
        wait_until(lambda: all(nameservers.registered().values()), "the registration")
        shard.put(*(f"u{number}" for number in range(17)))
        assert not nameservers.wait_until_taken(0.05)
        assert one.topics() == [{"t"}]
        seconds[0] += 4.4
        assert not nameservers.wait_until_taken(0.05)
        seconds[0] += 0.2
        assert nameservers.wait_until_taken(10)
        assert one.topics() == [{"t"}, set(shard.rows)]


def test_a_name_server_that_comes_back_empty_is_told_everything_again(fake: Callable[..., FakeNameServer]) -> None:
    port = free_port()
    first, shard = fake(port), Shard("t")
    with capture_logs() as logs, registered(shard, first.address) as nameservers:
        wait_until(lambda: nameservers.registered()[str(first.address)], "the registration")
        first.server.close()
        wait_until(lambda: not nameservers.registered()[str(first.address)], "the end of the name server")
        shard.put("u")
        nameservers.topics_changed()
        second = fake(port)
        wait_until(lambda: second.topics()[:1] == [{"t", "u"}], "the registration at the new one")
        wait_until(lambda: nameservers.registered()[str(first.address)], "its answer")
    failures = [entry["error"] for entry in logs if entry["event"] == "nameserver.failed"]
    assert len(failures) == len(set(failures)) <= 3  # each change once, however often it was tried


def test_a_name_server_that_tells_another_address_for_the_shard_changes_nothing(
    fake: Callable[..., FakeNameServer],
) -> None:
    """It may know another broker of this name as the master; a shard does not follow it, as a broker would."""
    one, shard = fake(), Shard("t")
    one.fields = {"masterAddr": "10.9.9.9:10911", "haServerAddr": "10.9.9.9:10912"}
    with registered(shard, one.address) as nameservers:
        wait_until(lambda: nameservers.registered()[str(one.address)], "the registration")
        shard.put("u")
        nameservers.topics_changed()
        wait_until(lambda: one.topics() == [{"t"}, {"u"}], "the change")
    assert {each.address for _, each in one.told if each is not None} == {"10.0.0.1:10911"}


@pytest.mark.parametrize("how", ["silent", "refusing", "closed", "nonsense", "one byte at a time"])
def test_a_name_server_that_does_not_answer_harms_no_other(
    how: str, fake: Callable[..., FakeNameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commitlog_svc.nameservers, "ANSWER_SECONDS_MAX", 0.2)
    good, bad, shard = fake(), fake(), Shard("t")
    bad.answers, bad.code = how != "silent", 1
    address = bad.address
    stopping = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        while not stopping.is_set():
            with contextlib.suppress(OSError), listener.accept()[0] as connected:
                connected.settimeout(5)
                if how == "nonsense":
                    connected.recv(10)
                    connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                while how == "one byte at a time" and not stopping.wait(0.01):
                    connected.sendall(b"\0")

    if how == "closed":
        bad.server.close()
    elif how in ("nonsense", "one byte at a time"):
        address = NameServer(Address("127.0.0.1", listener.getsockname()[1]))
        threading.Thread(target=talk, daemon=True).start()
    with capture_logs() as logs, registered(shard, address, good.address) as nameservers:
        wait_until(lambda: good.topics() == [{"t"}], "the registration at the good one")
        wait_until(lambda: any(entry["event"] == "nameserver.failed" for entry in logs), "the failure of the bad one")
        wait_until(
            lambda: nameservers.registered() == {str(address): False, str(good.address): True}, "what is registered"
        )
        shard.put("u")
        nameservers.topics_changed()
        wait_until(lambda: good.topics()[1:] == [{"u"}], "a change at the good one")
    stopping.set()
    listener.close()
    assert good.told[-1][0] == 104


def test_a_name_server_that_hangs_does_not_hold_up_the_end(
    fake: Callable[..., FakeNameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commitlog_svc.nameservers, "CLOSE_SECONDS_MAX", 0.1)
    one, shard = fake(), Shard("t")
    with registered(shard, one.address) as nameservers:
        wait_until(lambda: nameservers.registered()[str(one.address)], "the registration")
        one.answers = False
    assert one.told[-1][0] == 104


def test_only_a_replica_that_leads_registers_and_one_that_was_deposed_leaves_the_address_to_the_next(
    fake: Callable[..., FakeNameServer],
) -> None:
    one, old, new = fake(), Shard("t"), Shard("t")
    new.leads = False
    with registered(old, one.address), registered(new, one.address) as of_new:
        wait_until(lambda: len(one.told) == 1, "the registration of the leader")
        old.leads, new.leads = False, True
        wait_until(lambda: of_new.registered()[str(one.address)], "the registration of the next leader")
        assert [code for code, _ in one.told] == [103, 103]
    assert [code for code, _ in one.told] == [103, 103, 104]  # that of the one that leads


def test_an_address_that_dns_learns_later_is_registered_then_and_no_earlier(
    fake: Callable[..., FakeNameServer],
) -> None:
    """As that of a shard that `kubectl scale` added before its Service was made."""
    one, shard = fake(), Shard("t")
    asked: list[int] = []

    def is_known() -> bool:
        asked.append(len(one.told))
        return len(asked) > commitlog_svc.nameservers.TOLD_TRY_COUNT

    with capture_logs() as logs:
        nameservers = NameServers((one.address,), FIELDS, shard.topics, is_known=is_known)
        nameservers.start()
        wait_until(lambda: nameservers.registered()[str(one.address)], "the registration")
        nameservers.close()
    assert asked == [0] * (commitlog_svc.nameservers.TOLD_TRY_COUNT + 1)
    (failed,) = [line for line in logs if line["event"] == "nameserver.failed"]
    assert "DNS does not know 10.0.0.1:10911" in str(failed)


@pytest.mark.parametrize("opens_at", [0.0, 0.3, 10.0, 14.9, 1_000.0])
def test_a_door_that_opened_after_10_s_was_in_routes_after_19_s(
    fake: Callable[..., FakeNameServer], monkeypatch: pytest.MonkeyPatch, opens_at: float
) -> None:
    """The wait for a door doubled, as that for a name server that is down. One that never opens is told after 15 s."""
    for name, seconds in (
        ("RETRY_SECONDS_MIN", RETRY_SECONDS_MIN),
        ("RETRY_SECONDS_MAX", RETRY_SECONDS_MAX),
        ("LEAD_SECONDS", LEAD_SECONDS),
    ):
        monkeypatch.setattr(commitlog_svc.nameservers, name, seconds)
    one, shard = fake(), Shard("t")
    now = [0.0]
    registered_at: list[float] = []

    class Poll:
        """Until the shard is registered time goes by at once."""

        def __init__(self) -> None:
            self._real = select.poll()
            self.register = self._real.register

        def poll(self, millis: float) -> list[tuple[int, int]]:
            if registered_at:
                return self._real.poll(millis)
            now[0] += millis / 1_000
            return self._real.poll(0)

    def topics() -> Topics:
        registered_at.append(now[0])
        return shard.topics()

    monkeypatch.setattr(commitlog_svc.nameservers, "select", SimpleNamespace(poll=Poll, POLLIN=select.POLLIN))

    def look_up(*_: object, **__: object) -> list[Any]:
        return ["found"]

    is_known = KnownOnce(Address("door", 1), look_up, lambda _: now[0] < opens_at, lambda: now[0])
    nameservers = NameServers((one.address,), FIELDS, topics, clock=lambda: now[0], is_known=is_known)
    nameservers.start()
    wait_until(lambda: nameservers.registered()[str(one.address)], "the registration")
    nameservers.close()
    told_at = min(opens_at, DOOR_SECONDS_MAX)
    assert told_at <= registered_at[0] <= told_at + LEAD_SECONDS + 0.001


def test_a_name_server_that_sends_without_a_pause_kept_the_registration_from_its_work() -> None:
    one = NameServers((NameServer(Address("127.0.0.1", 1)),), FIELDS, Shard("t").topics)._each[0]
    read: list[int] = []

    def recv(size_bytes: int) -> bytes:
        read.append(size_bytes)
        assert len(read) <= READ_COUNT_MAX
        return encode(Command(905))

    one._receive_all(SimpleNamespace(settimeout=lambda _: None, recv=recv))  # type: ignore[arg-type]
    assert len(read) == READ_COUNT_MAX


def test_addresses_of_name_servers_are_separated_as_rocketmq_separates_them() -> None:
    found = parse_nameservers("10.0.0.1:9876; [::1]:9877;10.0.0.1:9876;tls://a:1;")
    assert found == (
        NameServer(Address("10.0.0.1", 9876)),
        NameServer(Address("::1", 9877)),
        NameServer(Address("a", 1), is_tls=True),
    )
    assert [str(each) for each in found] == ["10.0.0.1:9876", "[::1]:9877", "tls://a:1"]
    assert parse_nameservers("") == ()
    many = ";".join(f"10.0.0.1:{number}" for number in range(1, NAMESERVER_COUNT_MAX + 2))
    for text in ("10.0.0.1", "a:1;b", "tls://", "http://a:1:x", many):
        with pytest.raises(InvalidArgumentError):
            parse_nameservers(text)


def test_a_name_server_over_tls_is_registered_at_and_one_of_another_authority_is_not(
    tmp_path: Path, fake: Callable[..., FakeNameServer]
) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    contexts = []
    for issuer, name in ((authority, "127.0.0.1"), (other, "127.0.0.1"), (authority, "another.example")):
        files = issuer.issue(name, name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        contexts.append(context)
    right, wrong, misnamed = (fake(tls=context) for context in contexts)
    shard = Shard("t")
    with (
        capture_logs() as logs,
        registered(shard, right.address, wrong.address, misnamed.address, ca=authority.path) as nameservers,
    ):
        wait_until(lambda: right.topics() == [{"t"}], "the registration")
        # The connection stays: what changes is told over it, and what the name server says between answers is taken.
        for number in range(3):
            shard.put(f"n{number}")
            assert nameservers.wait_until_taken()
        (connection,) = right.connections
        connection.tell(Command(905))
        shard.put("last")
        nameservers.topics_changed()
        wait_until(lambda: {"last"} in right.topics(), "the last topic")
        assert right.connections == [connection]
        wait_until(
            lambda: sum(line["event"] == "nameserver.failed" for line in logs) == 2, "the failures of the others"
        )
        assert nameservers.registered() == {
            str(right.address): True,
            str(wrong.address): False,
            str(misnamed.address): False,
        }
        right.server.close()
        wait_until(lambda: not nameservers.registered()[str(right.address)], "the end of the name server is seen")
    assert wrong.told == misnamed.told == []
    assert all("certificate verify failed" in line["error"] for line in logs if line["event"] == "nameserver.failed")


def test_a_commit_log_registers_its_topics_and_those_of_every_broker_at_our_name_server(tmp_path: Path) -> None:
    from tests.nameserver_svc.scenario import route
    from tests.nameserver_svc.test_nameserver import served

    (tmp_path / "n").mkdir()
    with served(tmp_path / "n") as nameserver, nameserver.connection() as client:
        settings = {
            "REPUT_NAMESERVERS": str(nameserver.address),
            "REPUT_STORE_HOST": "127.0.0.1:10999",
            "REPUT_COMMITLOG_CLUSTER_NAME": "c1",
        }
        with hosted_service("commitlog", tmp_path / "store", settings) as commitlog:
            wait_until(lambda: client.ask(route("TBW102").command()).code == 0, "the registration")
            found = loads(client.ask(route("TBW102").command()).body)
            (shown,) = found["brokerDatas"]
            assert (shown["cluster"], shown["brokerName"]) == ("c1", "broker-a")
            assert shown["brokerAddrs"] == {"0": "127.0.0.1:10999"}
            assert [row["perm"] for row in found["queueDatas"]] == [7]
            commitlog.stub.CreateTopic(pb.CreateTopicRequest(topic="t", queue_count=3))
            assert client.ask(route("t").command()).code == 0
            assert loads(client.ask(route("t").command()).body)["queueDatas"][0]["writeQueueNums"] == 3
            assert client.ask(route("broker-a").command()).code == client.ask(route("c1").command()).code == 0
        assert client.ask(route("t").command()).code == 17
