"""Stacks in this process: they answer as the processes of `reput serve` do, and leave nothing behind."""

import json
import logging
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import grpc
import pytest
import structlog

from deploy.background import RUNNING, BackgroundStack, _stop_all
from deploy.hosts import ChildDiedError, ThisProcess
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from store.errors import InvalidSettingError
from store.files.locks import BrokerLock, OwnerLock
from tests.support.process_state import nothing_left_behind
from tests.support.stack import NO_REMOTING, HostedStack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

SMALL = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20), **NO_REMOTING}


@pytest.fixture
def unchanged(tmp_path: pathlib.Path) -> Iterator[None]:
    """The process is afterwards what it was before, once the imports and gRPC's own threads are made."""
    BackgroundStack(tmp_path / "first", SMALL, gateway_port=0, console_port=0).stop()
    with nothing_left_behind():
        yield


def append_and_find(stack: BackgroundStack, number: int) -> None:
    with grpc.insecure_channel(stack.addresses["gateway"]) as channel:
        gateway = gateway_grpc.GatewayServiceStub(channel)
        message = new_message("Orders", b"body", keys=[f"key-{number}"])
        gateway.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX)
        wait_until(
            lambda: (
                len(
                    gateway.QueryMessageByKey(
                        pb.QueryMessageByKeyRequest(topic="Orders", key=f"key-{number}"), timeout=WAIT_SECONDS_MAX
                    ).messages
                )
                == 1
            ),
            "the message is found by its key",
        )


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.long)])
def test_many_starts_and_stops_leave_nothing_behind_in_the_process(tmp_path: pathlib.Path, count: int) -> None:
    for number in range(count):  # on one store: its locks are released each time
        stack = BackgroundStack(
            tmp_path / "store", SMALL | {"REPUT_DELAY_LEVELS": "1s 2s"}, gateway_port=0, console_port=0
        )
        if number % 10 == 0:
            append_and_find(stack, number)
        assert stack.stop() == 0


@pytest.mark.usefixtures("unchanged")
def test_two_stacks_run_beside_one_another_in_one_process(tmp_path: pathlib.Path) -> None:
    stacks = [BackgroundStack(tmp_path / name, SMALL, gateway_port=0, console_port=0) for name in ("a", "b")]
    for number, stack in enumerate(stacks):
        append_and_find(stack, number)
    assert [stack.stop() for stack in stacks] == [0, 0]


@pytest.mark.usefixtures("unchanged")
def test_a_stack_with_other_delay_levels_than_a_running_one_is_refused(tmp_path: pathlib.Path) -> None:
    with (
        BackgroundStack(tmp_path / "a", SMALL | {"REPUT_DELAY_LEVELS": "1s 2s"}, gateway_port=0, console_port=0),
        pytest.raises(InvalidSettingError, match="other delay levels"),
    ):
        BackgroundStack(tmp_path / "b", SMALL, gateway_port=0, console_port=0)


def test_a_program_that_forgot_to_stop_its_stack_never_ended(tmp_path: pathlib.Path) -> None:
    program = f"""
import pathlib
from deploy.background import BackgroundStack
stack = BackgroundStack(pathlib.Path({str(tmp_path / "store")!r}), {SMALL!r}, gateway_port=0, console_port=0)
raise SystemExit(7)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (7, "")
    assert not (tmp_path / "store" / "abort").exists(), "it was stopped cleanly"


def test_a_forked_child_stopped_the_stack_of_its_parent_at_its_end(tmp_path: pathlib.Path) -> None:
    program = f"""
import multiprocessing, pathlib
from deploy.background import BackgroundStack
with BackgroundStack(pathlib.Path({str(tmp_path / "store")!r}), {SMALL!r}, gateway_port=0, console_port=0) as stack:
    for target in (print, stack.stop):
        child = multiprocessing.get_context("fork").Process(target=target)
        child.start()
        child.join()
        assert child.exitcode == 0, child.exitcode
    assert stack.wait(0.5) is None, "it was stopped"
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_stop_that_is_asked_for_before_the_stack_begins_is_heard() -> None:
    host = ThisProcess()
    host.ask_to_stop()
    with host.wakeups() as reader:
        assert reader.recv(16) == bytes([signal.SIGTERM])


@pytest.mark.usefixtures("unchanged")
def test_a_stack_whose_gateway_cannot_listen_stops_what_it_has_started(tmp_path: pathlib.Path) -> None:
    stack = BackgroundStack(tmp_path / "a", SMALL, gateway_port=0, console_port=0)
    port = int(stack.addresses["gateway"].rpartition(":")[2])
    with pytest.raises(InvalidSettingError, match="gateway cannot listen"):
        BackgroundStack(tmp_path / "b", SMALL, gateway_port=port, console_port=0)
    assert stack.stop() == 0


@pytest.mark.usefixtures("unchanged")
def test_a_store_that_another_stack_has_is_refused_by_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = BackgroundStack(tmp_path / "store", SMALL, gateway_port=0, console_port=0)
    for lock in (OwnerLock, BrokerLock):
        monkeypatch.setitem(lock.__init__.__kwdefaults__, "wait_seconds", 0.1)
    with pytest.raises(ChildDiedError, match=r"commitlog ended with exit code 1: .*lock is held"):
        BackgroundStack(tmp_path / "store", SMALL, gateway_port=0, console_port=0)
    assert stack.stop() == 0


@pytest.mark.usefixtures("unchanged")
def test_a_service_that_ends_by_itself_ends_the_stack_with_its_code(tmp_path: pathlib.Path) -> None:
    stack = BackgroundStack(tmp_path / "store", SMALL, gateway_port=0, console_port=0)
    child = stack._stack._children["index"]
    child.server.fail(3, "a reason")  # type: ignore[attr-defined]
    assert stack.wait(WAIT_SECONDS_MAX) == 3
    assert stack.said == ["index ended with exit code 3: a reason"]
    assert stack.stop() == 3


@pytest.fixture
def structlog_as_imported() -> Iterator[None]:
    """Earlier tests of this process may have configured structlog; a program that has not."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    if before is not None:
        structlog.configure(**before)


@pytest.mark.usefixtures("structlog_as_imported")
def test_the_services_print_nothing_but_log_warnings_as_a_library_does(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broker.conf").write_text("unknownName = 1\n")
    stack = BackgroundStack(
        tmp_path / "store", SMALL | {"REPUT_CONFIG": str(tmp_path / "broker.conf")}, gateway_port=0, console_port=0
    )
    stack.stop()
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert ("reput.commitlog", logging.WARNING) in {(record.name, record.levelno) for record in caplog.records}


def test_a_stack_in_this_process_has_the_addresses_of_the_processes(tmp_path: pathlib.Path) -> None:
    port_file = tmp_path / "ports.json"
    with HostedStack(tmp_path / "store", port_file=port_file) as stack:
        assert set(stack.addresses) == {
            "gateway",
            "commitlog",
            "consumequeue",
            "index",
            "consumer",
            "schedule",
            "console",
        }
        assert json.loads(port_file.read_text()) == stack.addresses
    assert not port_file.exists()


def test_a_unix_address_for_the_gateway_was_refused_as_an_unknown_setting(tmp_path: pathlib.Path) -> None:
    address = f"unix:{tmp_path / 'g.sock'}"
    with BackgroundStack(tmp_path / "store", SMALL | {"REPUT_GATEWAY_ADDRESS": address}, console_port=0) as stack:
        assert stack.addresses["gateway"] == address
        append_and_find(stack, 1)


def test_a_private_stack_has_sockets_only_and_no_console_where_it_is_off(tmp_path: pathlib.Path) -> None:
    settings = SMALL | {"REPUT_GATEWAY_CONSOLE": "off"}
    with BackgroundStack(tmp_path / "store", settings, is_private=True) as stack:
        assert {address.partition(":")[0] for address in stack.addresses.values()} == {"unix"}
        assert set(stack.addresses) == {"gateway", "commitlog", "consumequeue", "index", "consumer", "schedule"}


def test_what_uses_a_stack_is_ended_while_its_services_still_answer(tmp_path: pathlib.Path) -> None:
    def before_stop() -> None:
        append_and_find(stack, 1)
        called.append(True)

    called: list[bool] = []
    stack = BackgroundStack(tmp_path / "store", SMALL, before_stop=before_stop, gateway_port=0, console_port=0)
    assert [stack.stop(), stack.stop()] == [0, 0]
    assert called == [True]


def test_a_thread_that_cannot_be_started_leaves_no_stack_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = set(RUNNING)
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="can't start new thread"):
        patched.setattr("deploy.background.threading.Thread.start", refused)
        BackgroundStack(tmp_path / "store", SMALL, gateway_port=0, console_port=0)
    assert before == RUNNING


def test_the_end_of_the_program_stops_the_others_where_one_stop_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stack:
        store = pathlib.Path("/stores/one")
        was_stopped = False

        def stop(self) -> None:
            self.was_stopped = True
            raise RuntimeError("its thread is gone")

    stacks = [Stack(), Stack()]
    monkeypatch.setattr("deploy.background.RUNNING", set(stacks))
    _stop_all()
    assert [stack.was_stopped for stack in stacks] == [True, True]
    assert caplog.messages == ["the stack on /stores/one could not be stopped: RuntimeError('its thread is gone')"] * 2


def test_a_stack_whose_callback_fails_is_stopped_all_the_same(tmp_path: pathlib.Path) -> None:
    def failing() -> None:
        raise ValueError("mine")

    stack = BackgroundStack(tmp_path / "store", SMALL, before_stop=failing, gateway_port=0, console_port=0)
    with pytest.raises(ValueError, match="mine"):
        stack.stop()
    assert stack.exit_code == 0
