"""Where the name server and the remoting door are: what was asked for, a setting, a default port that is free, or nowhere."""

import pathlib
import socket
from typing import NamedTuple

import pytest

import deploy.ports
from deploy.local import LocalStack, Replica
from deploy.ports import free_ports
from deploy.remoting_ports import OFF, Claims, Port, RemotingPorts, choose_remoting_ports
from services.rocketmq.address import parse_named_addresses
from store.errors import InvalidSettingError
from tests.support.stack import NO_REMOTING

DOOR = ("gateway", "remoting_address")
NAMESERVER = ("nameserver", "remoting_address")
BOTH = {"nameserver": "127.0.0.1:9876", "remoting": "127.0.0.1:10911"}


class Chosen(NamedTuple):
    ports: RemotingPorts
    said: list[str]


def choose(
    is_set: dict[tuple[str, str], str] | None = None,
    taken: tuple[int, ...] = (),
    own: dict[str, int] | None = None,
    *,
    is_on: bool = True,
    **asked: Port,
) -> Chosen:
    """What is chosen, and the lines that are said."""
    said: list[str] = []
    given = is_set or {}
    chosen = choose_remoting_ports(
        {"nameserver": None, "remoting": None, **asked},
        lambda component, name: given.get((component, name), ""),
        said.append,
        is_on=is_on,
        claims=lambda port: port not in taken,
        own=own,
    )
    return Chosen(chosen, said)


@pytest.mark.parametrize(
    ("asked", "is_set", "is_on", "taken", "expected", "said"),
    [
        ({}, {}, False, (), {}, 0),
        ({}, {}, True, (), BOTH, 0),
        ({}, {}, True, (9876,), {"remoting": "127.0.0.1:10911"}, 1),
        ({}, {}, True, (9876, 10911), {}, 1),
        ({"remoting": OFF}, {}, True, (9876, 10911), {}, 1),
        ({"nameserver": OFF, "remoting": OFF}, {}, True, (), {}, 0),
        ({"nameserver": OFF, "remoting": OFF}, {DOOR: "10.0.0.1:5", NAMESERVER: "10.0.0.1:6"}, True, (), {}, 0),
        ({}, {DOOR: OFF, NAMESERVER: OFF}, True, (), {}, 0),
        ({"remoting": 7}, {DOOR: OFF, NAMESERVER: OFF}, True, (), {"remoting": "127.0.0.1:7"}, 0),
        ({"remoting": 7}, {}, False, (7,), {"remoting": "127.0.0.1:7"}, 0),  # the gateway says that it is taken
        ({}, {DOOR: "10.0.0.1:5"}, False, (), {"remoting": "10.0.0.1:5"}, 0),
        ({"nameserver": 7}, {NAMESERVER: "10.0.0.1:5"}, False, (), {"nameserver": "127.0.0.1:7"}, 0),
    ],
)
def test_a_remoting_port_is_the_one_asked_for_or_set_or_a_default_one_that_is_free(
    asked: dict[str, Port],
    is_set: dict[tuple[str, str], str],
    is_on: bool,
    taken: tuple[int, ...],
    expected: dict[str, str],
    said: int,
) -> None:
    chosen = choose(is_set, taken, is_on=is_on, **asked)
    assert (chosen.ports.addresses, len(chosen.said)) == (expected, said)


def test_a_default_port_that_is_taken_is_named_with_the_flag_that_takes_another() -> None:
    assert choose(taken=(9876, 10_911)).said == [
        "no name server and no remoting door: ports 9876 and 10911 are taken; --nameserver-port and --remoting-port choose "
        "others (0: a free one), `off` asks for none"
    ]
    assert choose(taken=(10_911,)).said[0].startswith("no remoting door: port 10911 is taken; --remoting-port choose")


def test_a_cluster_takes_ports_of_its_own_instead_of_default_ones_that_are_taken() -> None:
    own = {"nameserver": 21, "remoting": 22}
    assert choose(own=own).ports.addresses == BOTH
    left = choose(taken=(9876, 10_911), own=own)
    assert left.ports.addresses == {"nameserver": "127.0.0.1:21", "remoting": "127.0.0.1:22"}
    assert (left.said, left.ports.has_fast_port) == ([], False)
    assert choose(own=own, nameserver=0, remoting=0).ports == left.ports


def test_two_starters_do_not_both_find_a_port_free() -> None:
    """The services bind it a second later."""
    (port,) = free_ports(1)
    first, second = Claims(), Claims()
    assert [first.take(port), second.take(port)] == [True, False]
    first.close()
    assert second.take(port)
    second.close()


@pytest.mark.parametrize(
    ("door", "expected", "line_count"),
    [
        ("127.0.0.1:10911", "127.0.0.1:10911", 0),
        ("10.0.0.5:10911", "10.0.0.5:10911", 0),
        ("broker-a=10.0.0.5:10911", "10.0.0.5:10911", 0),
        ("[fd00::5]:10911", "[fd00::5]:10911", 0),
        ("0.0.0.0:10911", "127.0.0.1:10911", 1),
        ("[::]:10911", "127.0.0.1:10911", 1),
    ],
)
def test_clients_are_told_the_address_where_the_door_listens(door: str, expected: str, line_count: int) -> None:
    chosen = choose({DOOR: door}, nameserver=OFF)
    assert chosen.ports.of_commitlog("")["REPUT_STORE_HOST"] == expected
    assert ["REPUT_STORE_HOST" in line for line in chosen.said] == [True] * line_count


def test_a_door_at_a_name_is_told_by_its_name() -> None:
    """It listens at the address of that name alone, so loopback would lead nowhere."""
    chosen = choose({DOOR: "broker.example:10911"})
    told = {"REPUT_COMMITLOG_BROKER_ADDRESS": "broker.example:10911", "REPUT_NAMESERVERS": "127.0.0.1:9876"}
    assert (chosen.said, chosen.ports.of_commitlog("")) == ([], told)
    behind = choose({DOOR: "broker.example:10911", ("", "store_host"): "10.0.0.5:10911"})
    assert (behind.said, set(behind.ports.of_commitlog(""))) == ([], {"REPUT_NAMESERVERS"})


STORE_HOST = ("", "store_host")
BROKER_ADDRESS = ("commitlog", "broker_address")


@pytest.mark.parametrize(
    ("is_set", "asked", "line_count"),
    [
        ({STORE_HOST: "10.0.0.5:10911"}, {}, 1),
        ({STORE_HOST: "10.0.0.5:10911"}, {"remoting": 20_911, "nameserver": 19_876}, 1),
        ({STORE_HOST: "10.0.0.5:10911"}, {"remoting": 0, "nameserver": 0}, 1),
        ({STORE_HOST: "10.0.0.5:10911", DOOR: "0.0.0.0:0"}, {}, 1),
        ({STORE_HOST: "127.0.0.1:10911"}, {"remoting": 0}, 1),
        ({BROKER_ADDRESS: "shard.example:10911"}, {"remoting": 0}, 1),
        ({BROKER_ADDRESS: "broker-b=10.0.0.5:10911"}, {"remoting": 0}, 0),  # it does not register
        ({STORE_HOST: "127.0.0.1:10911"}, {}, 0),
        ({STORE_HOST: "127.0.0.1:20911"}, {"remoting": 20_911}, 0),
        ({STORE_HOST: "10.0.0.5:10911", DOOR: "0.0.0.0:10911"}, {}, 0),  # both are set: the network translates
        ({BROKER_ADDRESS: "shard.example:10911", DOOR: "0.0.0.0:10911"}, {}, 0),
    ],
)
def test_an_address_that_leads_elsewhere_than_to_a_door_that_no_setting_names_is_said(
    is_set: dict[tuple[str, str], str], asked: dict[str, Port], line_count: int
) -> None:
    """Such as that of an old broker.conf: clients would reach the old broker."""
    chosen = choose(is_set, **asked)
    told = next(value for key, value in is_set.items() if key != DOOR)
    assert [f"remoting clients are told {told}" in line for line in chosen.said] == [True] * line_count
    assert "REPUT_STORE_HOST" not in chosen.ports.of_commitlog("")


@pytest.mark.parametrize(
    ("is_set", "taken", "asked", "lines"),
    [
        (
            {},
            (10_911,),
            {},
            ["no remoting door: port 10911", "the shard does not register at 127.0.0.1:9876;10.0.0.9:9876"],
        ),
        ({}, (), {"remoting": OFF}, ["the shard does not register at 127.0.0.1:9876;10.0.0.9:9876"]),
        ({DOOR: "broker-b=127.0.0.1:10921"}, (), {}, ["the shard does not register at 127.0.0.1:9876;10.0.0.9:9876"]),
    ],
)
def test_a_shard_without_a_door_registers_at_no_further_name_server(
    is_set: dict[tuple[str, str], str], taken: tuple[int, ...], asked: dict[str, Port], lines: list[str]
) -> None:
    """The address that it would tell is that of another program, which has the port."""
    nameservers = {("", "nameservers"): "10.0.0.9:9876"}
    chosen = choose(is_set | nameservers, taken, **asked)
    assert chosen.ports.of_commitlog("10.0.0.9:9876") == {"REPUT_NAMESERVERS": OFF}
    assert [line.startswith(begin) for line, begin in zip(chosen.said, lines, strict=True)] == [True] * len(lines)
    elsewhere = choose(is_set | nameservers | {BROKER_ADDRESS: "10.0.0.5:10911"}, taken, **asked)
    registers = elsewhere.ports.of_commitlog("10.0.0.9:9876").get("REPUT_NAMESERVERS")
    assert registers == "127.0.0.1:9876;10.0.0.9:9876"


def test_a_replica_keeps_the_name_servers_that_its_cluster_gives_it(tmp_path: pathlib.Path) -> None:
    replica = LocalStack(tmp_path, environ={"REPUT_NAMESERVERS": "127.0.0.1:1"}, replica=Replica("r1", "etcd://x/y"))
    assert replica.remoting_settings("commitlog", tmp_path) == {}


def test_the_shard_registers_at_our_name_server_and_at_further_ones() -> None:
    assert choose().ports.of_commitlog("")["REPUT_NAMESERVERS"] == "127.0.0.1:9876"
    everywhere = choose({NAMESERVER: "0.0.0.0:9876"}).ports
    assert everywhere.of_commitlog("")["REPUT_NAMESERVERS"] == "127.0.0.1:9876"
    assert everywhere.of_gateway("")["REPUT_NAMESERVER_REMOTING_ADDRESS"] == "0.0.0.0:9876"
    assert (
        choose({NAMESERVER: "names.example:9876"}).ports.of_commitlog("")["REPUT_NAMESERVERS"] == "names.example:9876"
    )
    assert choose().ports.of_commitlog("10.0.0.9:9876")["REPUT_NAMESERVERS"] == "127.0.0.1:9876;10.0.0.9:9876"
    # Its routes would lead nowhere.
    assert choose(remoting=OFF).ports.of_commitlog("") == {}


def test_a_door_at_a_free_port_has_no_fast_port_beside_it() -> None:
    free = choose(remoting=0, nameserver=OFF).ports.of_gateway("")
    fixed = choose(remoting=10_911, nameserver=OFF).ports.of_gateway("")
    assert free["REPUT_GATEWAY_REMOTING_VIP_CHANNEL"] == "off"
    assert "REPUT_GATEWAY_REMOTING_VIP_CHANNEL" not in fixed


def test_a_gateway_without_a_door_is_told_so_also_against_its_settings_file() -> None:
    assert choose({DOOR: "10.0.0.1:5"}, remoting=OFF).ports.of_gateway("")["REPUT_GATEWAY_REMOTING_ADDRESS"] == "off"


@pytest.mark.parametrize(("name", "value"), [("auth", "on"), ("client_ca", "ca.crt")])
def test_clients_that_sign_in_have_both_ports_as_others_do(name: str, value: str) -> None:
    by_default = choose({("gateway", name): value})
    assert (by_default.said, by_default.ports.addresses) == ([], choose().ports.addresses)


def test_the_name_server_shows_the_gateways_certificate_for_clients_unless_it_has_its_own() -> None:
    """A client of RocketMQ that uses TLS uses it for both."""

    def told(is_set: dict[tuple[str, str], str], **asked: Port) -> dict[str, str]:
        settings = choose(is_set, **asked).ports.of_gateway("")
        return {name: value for name, value in settings.items() if "TLS" in name}

    of_gateway = {("gateway", "public_tls_certificate"): "a.crt", ("gateway", "public_tls_key"): "a.key"}
    of_nameserver = {("nameserver", "public_tls_certificate"): "n.crt", ("nameserver", "public_tls_key"): "n.key"}
    assert told({}) == {}
    assert told(of_gateway) == {
        "REPUT_NAMESERVER_PUBLIC_TLS_CERTIFICATE": "a.crt",
        "REPUT_NAMESERVER_PUBLIC_TLS_KEY": "a.key",
    }
    assert told(of_gateway | of_nameserver) == told(of_gateway, nameserver=OFF) == {}


SHARDS = {("gateway", "shards"): "broker-a=1,2,3;broker-b=4,5,6"}
DOORS = "broker-a=127.0.0.1:10911,broker-b=127.0.0.1:10921"


def test_a_stack_whose_gateway_serves_further_shards_needs_an_address_for_each_door() -> None:
    """The gateway would not start: one port says nothing of which shard a client of 4.x means."""
    left = choose(SHARDS)
    assert left.ports.addresses == {}
    (line,) = left.said
    assert "REPUT_GATEWAY_SHARDS is set" in line
    given = choose(SHARDS | {DOOR: DOORS})
    assert (given.said, given.ports.addresses) == ([], {**BOTH, "remoting": DOORS})
    for address in ("127.0.0.1:10911", "broker-a=nowhere"):
        with pytest.raises(InvalidSettingError, match="remoting_address"):
            choose(SHARDS | {DOOR: address})


def test_of_doors_with_names_clients_are_told_the_one_of_the_stacks_own_shard() -> None:
    """At the door of another shard a client would find none of the queues that it looks for."""
    for name, door in (("", "127.0.0.1:10911"), ("broker-a", "127.0.0.1:10911"), ("broker-b", "127.0.0.1:10921")):
        ports = choose(SHARDS | {DOOR: DOORS, ("", "broker_name"): name}).ports
        assert ports.of_commitlog("") == {"REPUT_STORE_HOST": door, "REPUT_NAMESERVERS": "127.0.0.1:9876"}
        assert ports.bound == {"nameserver": "127.0.0.1:9876", "remoting": door}
        assert ports.of_gateway("")["REPUT_GATEWAY_REMOTING_ADDRESS"] == DOORS


@pytest.mark.parametrize(
    "is_set",
    [
        SHARDS | {DOOR: "broker-b=127.0.0.1:10921"},
        {("gateway", "shards"): "broker-b=4,5,6", DOOR: "127.0.0.1:10921"},
        {("gateway", "shard_template"): "shard-{i}=c{i},q{i},x{i}", DOOR: "127.0.0.1:10921"},
    ],
)
def test_a_shard_without_a_door_of_its_own_does_not_register_at_the_one_of_another(
    is_set: dict[tuple[str, str], str],
) -> None:
    ports = choose(is_set).ports
    assert ports.of_commitlog("") == {}
    assert ports.bound == {"nameserver": "127.0.0.1:9876"}


def test_port_0_is_a_free_port_before_anything_starts() -> None:
    found = choose(is_on=False, nameserver=0, remoting=0).ports.addresses
    assert all(int(address.rpartition(":")[2]) for address in found.values())
    doors = choose(SHARDS | {DOOR: "broker-a=127.0.0.1:0,broker-b=127.0.0.1:0"}, nameserver=0).ports
    gateway = doors.of_gateway("")
    chosen = parse_named_addresses(gateway["REPUT_GATEWAY_REMOTING_ADDRESS"], [], "remoting_address")
    assert doors.bound["remoting"] == str(chosen["broker-a"])
    assert len({doors.bound["nameserver"], *map(str, chosen.values())}) == 3
    assert gateway["REPUT_GATEWAY_REMOTING_VIP_CHANNEL"] == "off"


def test_a_free_port_is_free_at_the_address_where_it_will_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have it there and not on the loopback address that was looked at."""
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(deploy.ports, "_candidates", lambda: iter((port, port + 1, port + 2, port + 3)))
        assert choose(remoting=OFF, nameserver=0).ports.bound["nameserver"] == f"127.0.0.1:{port}"
        for host in ("127.0.0.2", "0.0.0.0"):
            assert not choose({DOOR: f"{host}:0"}, nameserver=OFF).ports.bound["remoting"].endswith(f":{port}")
    with pytest.raises(InvalidSettingError, match=r"gateway cannot listen at 192\.0\.2\.1:0"):
        choose({DOOR: "192.0.2.1:0"}, nameserver=OFF)


@pytest.mark.parametrize("environ", [{"REPUT_FOLLOW": "true"}, {"REPUT_MIRROR": "rocketmq://127.0.0.1:10912"}])
def test_a_stack_with_the_log_of_a_broker_leaves_the_ports_of_clients_to_the_broker(
    tmp_path: pathlib.Path, environ: dict[str, str]
) -> None:
    said: list[str] = []
    LocalStack(tmp_path, environ=environ, say=said.append).choose_remoting_ports()
    LocalStack(tmp_path, environ=environ | NO_REMOTING, say=said.append).choose_remoting_ports()
    assert said == []
    stack = LocalStack(tmp_path, environ=environ | {"REPUT_GATEWAY_REMOTING_ADDRESS": "127.0.0.1:1"}, say=said.append)
    stack.choose_remoting_ports()
    assert stack.remoting_settings("gateway", tmp_path)["REPUT_GATEWAY_REMOTING_ADDRESS"] == "off"
    assert ["the broker that has the log" in line for line in said] == [True]


def test_a_private_stack_has_no_remoting_ports_by_default(tmp_path: pathlib.Path) -> None:
    stack = LocalStack(tmp_path, environ={}, is_private=True)
    stack.choose_remoting_ports()
    assert stack.remoting_settings("gateway", tmp_path) == {"REPUT_GATEWAY_REMOTING_ADDRESS": "off"}
    assert stack.remoting_settings("commitlog", tmp_path) == {}
