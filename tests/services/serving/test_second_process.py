"""A second process on one store or one unix address: it says so and ends, and the first one keeps its sockets."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import commitlog_svc.__main__ as commitlog_main
import consumequeue_svc.__main__ as consumequeue_main
import consumer_svc.__main__ as consumer_main
import index_svc.__main__ as index_main
import schedule_svc.__main__ as schedule_main
from commitlog_svc.settings import CommitLogSettings
from consumequeue_svc.settings import ConsumeQueueSettings
from consumer_svc.settings import ConsumerSettings
from index_svc.settings import IndexSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from schedule_svc.settings import ScheduleSettings
from services.local.server import serve_local
from services.local.wire import APPENDS, LOOKUPS
from services.serving.server import ServiceServer
from services.settings.service_settings import Origins, ServiceSettings
from store.errors import InvalidSettingError, StoreLockedError, UnsupportedStoreError
from store.files.locks import OwnerLock
from tests.services.loopback import commit_log_server, get_request, stub
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).parents[3]
# A service's module, run with a short wait for the locks.
IMPATIENT = """
import runpy, sys
from store.files.locks import OwnerLock
OwnerLock.__init__.__kwdefaults__["wait_seconds"] = 0.1
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
SERVICES = {
    "commitlog": (commitlog_main.serve, CommitLogSettings),
    "consumequeue": (consumequeue_main.serve, ConsumeQueueSettings),
    "index": (index_main.serve, IndexSettings),
    "consumer": (consumer_main.serve, ConsumerSettings),
    "schedule": (schedule_main.serve, ScheduleSettings),
}


@pytest.fixture(autouse=True)
def _no_lock_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnerLock.__init__, "__kwdefaults__", {"wait_seconds": 0.05})


def ended(server: ServiceServer) -> None:
    """Ends a service that could not start, as its host does: this process keeps nothing of it."""
    server.stop()
    server.serve_until_stopped()
    server.close()


def inodes(directory: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(directory)}


def test_a_unix_address_that_is_too_long_is_refused_with_that_reason(tmp_path: Path) -> None:
    # It was refused as one that another process has, and a benchmark failed for that only where its directory was long.
    server = ServiceServer("nameserver", ServiceSettings(address=f"unix:{tmp_path}/{'x' * 107}"))
    with pytest.raises(InvalidSettingError, match=r"nameserver cannot listen at unix:.*at most 107 bytes"):
        server.start()
    ended(server)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_second_process_does_not_get_a_unix_address_and_the_first_keeps_its_sockets(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    with commit_log_server(address, get_message=lambda *_: pb.GetMessageResponse()) as first:
        for kind in (LOOKUPS, APPENDS):
            assert serve_local(kind, address, {}, first) is not None
        before = inodes(tmp_path)

        second = ServiceServer("commitlog", ServiceSettings(address=address))
        with pytest.raises(InvalidSettingError, match=r"cannot listen at unix:.*s.lock is held by this process"):
            serve_local(LOOKUPS, address, {}, second)
        with pytest.raises(InvalidSettingError, match=r"cannot listen at unix:.*s.lock is held by this process"):
            second.start()

        assert inodes(tmp_path) == before
        assert stub(first).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX) == pb.GetMessageResponse()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"{tmp_path}/s.lookups")

    assert set(inodes(tmp_path)) == {"s.lock"}
    with commit_log_server(
        address, get_message=lambda *_: pb.GetMessageResponse()
    ) as third:  # the address is free again
        assert stub(third).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX) == pb.GetMessageResponse()


def test_a_socket_that_another_process_has_put_there_is_not_removed_at_the_end(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    with commit_log_server(address) as first:
        assert serve_local(LOOKUPS, address, {}, first) is not None
        others = []
        for name in ("s", "s.lookups"):
            (tmp_path / name).unlink()
            others.append(socket.socket(socket.AF_UNIX))
            others[-1].bind(str(tmp_path / name))

    assert set(inodes(tmp_path)) == {"s.lock", "s", "s.lookups"}
    for other in others:
        other.close()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_whose_files_are_held_makes_no_socket(tmp_path: Path, name: str) -> None:
    serve, settings_class = SERVICES[name]
    store, sockets = tmp_path / "store", tmp_path / "sockets"
    sockets.mkdir()
    held = OwnerLock(store / "reput" / name / "lock")
    held.acquire()
    settings = settings_class(store=store, address=f"unix:{sockets}/s")
    server = ServiceServer(name, settings)
    try:
        with pytest.raises(StoreLockedError, match=str(held.path)):
            serve(server, settings, Origins())  # type: ignore[arg-type]  # each takes its own class
        assert inodes(sockets) == {}
    finally:
        held.release()
        ended(server)


@pytest.mark.parametrize("name", ["consumequeue", "index", "consumer", "schedule"])
def test_a_follower_writes_nothing_into_a_directory_that_is_no_store(tmp_path: Path, name: str) -> None:
    serve, settings_class = SERVICES[name]
    (tmp_path / "Documents").mkdir()
    settings = settings_class(store=tmp_path)

    server = ServiceServer(name, settings)
    with pytest.raises(UnsupportedStoreError, match="Documents"):
        serve(server, settings, Origins())  # type: ignore[arg-type]
    ended(server)

    assert os.listdir(tmp_path) == ["Documents"]


@pytest.mark.parametrize("name", SERVICES)
def test_its_process_ends_and_says_which_file_is_held(tmp_path: Path, name: str) -> None:
    """It ends though no commit log answers: it does not wait for one while it listens without its files."""
    held = OwnerLock(tmp_path / "reput" / name / "lock")
    held.acquire()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("REPUT_")}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'protos'}"
    flags = ["--store", str(tmp_path), "--address", f"unix:{tmp_path}/s"]
    if name != "commitlog":
        flags += ["--commitlog-target", f"unix:{tmp_path}/nobody"]
    try:
        run = subprocess.run(
            [sys.executable, "-c", IMPATIENT, f"{name}_svc", *flags],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        held.release()

    assert run.returncode == 1, run.stderr
    assert f"{held.path} is held by another process: stop that process first" in run.stderr
    assert "STORE_LOCKED" in run.stderr
    assert "Traceback" not in run.stderr
    assert "server.listening" not in run.stderr
