"""A shard whose clients know it by a name: what name servers are told, and which IP stands in records and ids."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import commitlog_svc.broker_address
from commitlog_svc.broker_address import KnownOnce, host_at
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.rocketmq.address import Address
from services.rocketmq.fastjson import loads
from services.settings.service_settings import load_settings
from store.errors import InvalidSettingError
from store.format.host import Host
from store.format.message_id import decode_offset_msg_id
from tests.nameserver_svc.scenario import route
from tests.nameserver_svc.test_nameserver import served
from tests.support.service import hosted_service
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.96.0.7", 10911))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7%eth0", 10911, 0, 2))
DOOR = Address("reput-broker-0.messages.svc", 10911)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commitlog_svc.broker_address, "LOOKUP_SECONDS_MAX", 0.3)
    monkeypatch.setattr(commitlog_svc.broker_address, "LOOKUP_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(commitlog_svc.broker_address, "DOOR_SECONDS_MAX", 0.3)


def _settings(**environ: str) -> CommitLogSettings:
    return load_settings("commitlog", CommitLogSettings, environ=environ)[0]


def test_a_name_has_its_ipv4_address_where_there_is_one_and_else_the_other() -> None:
    assert host_at(DOOR, lambda *asked, **how: [V6, V4]) == Host("10.96.0.7", 10911)
    assert host_at(DOOR, lambda *asked, **how: [V6]) == Host("fd00::7", 10911)
    assert host_at(Address("10.0.0.9", 30911)) == Host("10.0.0.9", 30911)


def test_a_name_that_dns_learns_later_is_asked_for_again() -> None:
    asked: list[str] = []

    def look_up(host: str, port: int, **how: Any) -> list[Any]:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "not yet")
        return [V4]

    assert host_at(DOOR, look_up) == Host("10.96.0.7", 10911)
    assert asked == [DOOR.host] * 3


def test_dns_that_is_silent_or_knows_no_such_name_ends_in_time_without_a_host() -> None:
    def unknown(*asked: Any, **how: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    assert host_at(DOOR, unknown) is None
    answered = threading.Event()

    def silent(*asked: Any, **how: Any) -> list[Any]:
        answered.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    assert host_at(DOOR, silent) is None
    answered.set()


def test_a_shard_takes_the_address_with_its_name() -> None:
    listed = "broker-0=192.0.2.1:30911,broker-1=192.0.2.1:30921"
    assert _settings(REPUT_BROKER_NAME="broker-1", REPUT_COMMITLOG_BROKER_ADDRESS=listed).door() == Address(
        "192.0.2.1", 30921
    )
    assert _settings(REPUT_BROKER_NAME="broker-2", REPUT_COMMITLOG_BROKER_ADDRESS=listed).door() is None
    assert _settings(REPUT_COMMITLOG_BROKER_ADDRESS=str(DOOR)).door() == DOOR
    assert _settings().door() is None
    for wrong in ("reput-broker-0", "broker-a=10.0.0.1:0", "10.0.0.1:70000"):
        with pytest.raises(InvalidSettingError):
            _settings(REPUT_COMMITLOG_BROKER_ADDRESS=wrong)


@contextlib.contextmanager
def _routes(directory: Path, **settings: str) -> Iterator[tuple[dict[str, Any], str]]:
    """What clients are told of a shard, and the host in the id of its first message."""
    (directory / "n").mkdir(parents=True)
    with served(directory / "n") as nameserver, nameserver.connection() as client:
        given = {"REPUT_NAMESERVERS": str(nameserver.address), "REPUT_STORE_HOST": "10.0.7.1:10911", **settings}
        with hosted_service("commitlog", directory / "store", given) as commitlog:
            request = pb.AppendMessagesRequest(messages=[new_message("t", b"x")])
            (sent,) = commitlog.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX, wait_for_ready=True).results
            if "broker-b" not in settings.get("REPUT_COMMITLOG_BROKER_ADDRESS", ""):
                wait_until(lambda: client.ask(route("t").command()).code == 0, "the registration")
            found = client.ask(route("t").command())
            yield (loads(found.body) if found.code == 0 else {}), str(decode_offset_msg_id(sent.offset_msg_id)[0])


def test_name_servers_are_told_the_name_and_ids_have_its_ip(tmp_path: Path) -> None:
    with _routes(tmp_path / "known", REPUT_COMMITLOG_BROKER_ADDRESS="localhost:10999") as (told, host):
        assert told["brokerDatas"][0]["brokerAddrs"] == {"0": "localhost:10999"}
        assert host == "127.0.0.1:10999"


def test_a_shard_at_a_name_that_dns_does_not_know_is_served_and_does_not_register(tmp_path: Path) -> None:
    """Consumers would be given its queues and could not pull from them."""
    address = "broker-a=no-such-name.invalid:10911,broker-b=192.0.2.1:30911"
    with _routes(tmp_path / "unknown", REPUT_COMMITLOG_BROKER_ADDRESS=address) as (told, host):
        assert (told, host) == ({}, "10.0.7.1:10911")


def test_a_name_that_dns_has_known_once_stays_known() -> None:
    answers: list[list[Any] | OSError] = [socket.gaierror(socket.EAI_NONAME, "not yet"), [V4]]

    def look_up(host: str, port: int, **how: Any) -> list[Any]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    is_known = KnownOnce(DOOR, look_up, is_closed=lambda _: False)
    assert [is_known(), is_known(), is_known()] == [False, True, True]


def test_a_shard_was_in_routes_before_its_door_listened_and_refused_the_sends_of_clients() -> None:
    """The commit log starts first: clients were told the address for seconds before a gateway listened there."""
    seconds = [0.0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        is_open = KnownOnce(Address("127.0.0.1", port))
        assert is_open()
    assert is_open(), "a gateway that starts again takes no shard out of routes"
    is_closed = KnownOnce(Address("127.0.0.1", port), clock=lambda: seconds[0])
    assert not is_closed()
    seconds[0] = commitlog_svc.broker_address.DOOR_SECONDS_MAX
    assert is_closed(), "clients may come another way"


def test_a_shard_whose_address_is_not_listed_is_served_and_does_not_register(tmp_path: Path) -> None:
    with _routes(tmp_path / "unlisted", REPUT_COMMITLOG_BROKER_ADDRESS="broker-b=192.0.2.1:30911") as (told, host):
        assert (told, host) == ({}, "10.0.7.1:10911")
