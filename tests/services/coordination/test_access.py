"""Addresses of coordinators."""

import pytest

from services.coordination.access import EtcdAddress, KubernetesAddress, parse_address
from services.coordination.opening import open_record_store
from store.errors import InvalidSettingError


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("etcd://10.0.0.1:2379/reput", EtcdAddress((("10.0.0.1", 2379),), "reput", False)),
        ("etcds://a,b:2380,[::1]:1/reput/x", EtcdAddress((("a", 2379), ("b", 2380), ("::1", 1)), "reput/x", True)),
        ("kubernetes://shards/reput", KubernetesAddress("shards", "reput")),
        ("kubernetes://s/r?server=https://10.0.0.1:6443", KubernetesAddress("s", "r", "https://10.0.0.1:6443")),
    ],
)
def test_an_address_names_a_coordinator(address: str, parsed: object) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    [
        *("", "etcd", "etcd://", "etcd:///reput", "etcd://h:1", "etcd://h:1/", "etcd://h:x/reput", "etcd://,h/reput"),
        *("etcd://u:p@h:1/reput", "etcd://h:1/reput?x=1", "http://h/reput", "kubernetes://ns", "kubernetes://ns/a/b"),
        *("kubernetes://ns/a?server=http://h:1", "kubernetes://ns/a?token=x", "etcd://h:99999/reput"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettingError, match="coordinator"):
        open_record_store(address, "broker-a")


def test_the_key_and_the_lease_are_named_after_the_shard() -> None:
    assert EtcdAddress((("h", 1),), "reput/prod", False).key("broker-a") == "reput/prod/broker-a"
    assert KubernetesAddress("ns", "reput").lease_name("broker-a") == "reput-broker-a"


@pytest.mark.parametrize("shard", ["Broker", "broker_a", "a" * 260, "a/b", "a-"])
def test_a_lease_name_that_kubernetes_refuses_is_refused_before(shard: str) -> None:
    with pytest.raises(InvalidSettingError, match="small letters"):
        open_record_store("kubernetes://ns/reput?server=https://h:1", shard)


def test_outside_of_a_pod_the_api_server_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidSettingError, match="server=https"):
        open_record_store("kubernetes://ns/reput", "broker-a")
