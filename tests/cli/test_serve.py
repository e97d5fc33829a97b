"""`reput serve` refuses flags that cannot work together, before it makes anything."""

import pathlib

import pytest

from tests.support.command import run_command


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--mirror", "broker:10912"), "rocketmq://HOST:HA_PORT"),
        (("--mirror", "rocketmq://broker"), "HOST:PORT"),
        (("--mirror", "rocketmq://broker:10912", "--mirror-broker", "broker"), "HOST:PORT"),
    ],
)
def test_a_mirror_that_names_no_broker_is_a_usage_error(
    tmp_path: pathlib.Path, flags: tuple[str, ...], why: str
) -> None:
    store = tmp_path / "store"
    done = run_command("serve", "--store", str(store), *flags)
    assert (done.returncode, store.exists()) == (2, False)
    assert why in done.stderr


def test_a_replica_in_a_single_process_is_a_usage_error(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    flags = ("--replica", "r1", "--coordinator", "etcd://127.0.0.1:1/reput", "--single-process")
    done = run_command("serve", "--store", str(store), *flags)
    assert (done.returncode, store.exists()) == (2, False)
    assert "--replica and --single-process are both set" in done.stderr


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--mirror", "rocketmq://broker:10912", "--nameserver-port", "0"), "are not for --follow and --mirror"),
        (("--mirror", "rocketmq://broker:10912", "--remoting-port", "0"), "are not for --follow and --mirror"),
        (
            ("--replica", "r1", "--coordinator", "etcd://127.0.0.1:1/r", "--remoting-port", "0"),
            "a replica has no gateway",
        ),
    ],
)
def test_a_remoting_port_beside_a_broker_or_of_a_replica_is_a_usage_error(
    tmp_path: pathlib.Path, flags: tuple[str, ...], why: str
) -> None:
    store = tmp_path / "store"
    done = run_command("serve", "--store", str(store), *flags)
    assert (done.returncode, store.exists()) == (2, False)
    assert why in done.stderr
