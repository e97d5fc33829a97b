"""What lies where in the directory of a cluster, and that its ports stay."""

import json
import pathlib
import socket

import pytest

from deploy.cluster.layout import Layout
from deploy.ports import claim_port, free_ports
from gateway.shards.targets import parse_shards


def test_a_second_start_finds_the_ports_and_the_secret_of_the_first_one(tmp_path: pathlib.Path) -> None:
    first = Layout.of(tmp_path, 3)

    assert Layout.of(tmp_path, 3) == first
    assert (tmp_path / "cluster.json").stat().st_mode & 0o777 == 0o600


def test_a_port_that_is_taken_meanwhile_moves_all_and_keeps_the_secret(tmp_path: pathlib.Path) -> None:
    first = Layout.of(tmp_path, 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first.ports[3]))
        taken.listen()
        second = Layout.of(tmp_path, 2)

    assert first.ports[3] not in second.ports
    assert second.receipt_secret == first.receipt_secret


def test_another_number_of_replicas_gets_ports_for_each_service(tmp_path: pathlib.Path) -> None:
    Layout.of(tmp_path, 1)
    layout = Layout.of(tmp_path, 3)

    addresses = [address for name in layout.replicas for address in layout.addresses(name).values()]
    assert len(set(addresses)) == 15
    assert not {f"127.0.0.1:{port}" for port in (*layout.ports[:2], *layout.front_ports.values())} & set(addresses)


def test_the_gateway_gets_an_entry_for_each_replica(tmp_path: pathlib.Path) -> None:
    layout = Layout.of(tmp_path, 2)

    first, second = parse_shards(layout.shards())

    assert (first.broker_name, first.replica, second.replica) == ("broker-a", "r1", "r2")
    assert first.commitlog == layout.addresses("r1")["commitlog"]
    assert second.schedule == layout.addresses("r2")["schedule"]


def test_a_damaged_cluster_file_is_named_and_not_overwritten(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cluster.json").write_text("{}")

    with pytest.raises(KeyError):
        Layout.of(tmp_path, 3)
    assert json.loads((tmp_path / "cluster.json").read_text()) == {}


def test_free_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(20)

    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_port_is_claimed_once_and_only_while_nothing_listens_there() -> None:
    (port,) = free_ports(1)
    claim = claim_port(port)
    assert claim is not None
    with claim:
        assert claim_port(port) is None, "another cluster, whose gateway does not listen yet"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert claim_port(port) is None
    again = claim_port(port)
    assert again is not None
    again.close()
