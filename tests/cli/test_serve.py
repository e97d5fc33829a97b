"""`reput serve` refuses flags that cannot work together, before it makes anything."""

import pathlib

import pytest

from cli.main import main
from cli.serve import port_of
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


@pytest.mark.parametrize("flag", ["--console-port", "--nameserver-port", "--remoting-port"])
@pytest.mark.parametrize("text", ["65536", "-1", "on", "", "٣"])
def test_what_is_no_port_and_not_off_is_a_usage_error(
    tmp_path: pathlib.Path, flag: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--store", str(tmp_path / "store"), f"{flag}={text}"]) == 2
    said = capsys.readouterr().err
    assert (flag in said, "`off`" in said) == (True, True)


def test_a_port_of_rocketmqs_clients_may_be_off_beside_a_broker() -> None:
    assert [port_of("--remoting-port", text) for text in (None, "off", "0", "10911")] == [None, "off", 0, 10_911]
