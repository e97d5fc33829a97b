"""A process of a cluster: started again when it ends, stopped when it is to end, and gone with its starter.

What the status file says of each replica's role.
"""

import os
import pathlib
import select
import signal
import subprocess
import sys

import pytest

from deploy.cluster.layout import Layout
from deploy.cluster.local_cluster import (
    PAUSE_SECONDS_FIRST,
    PAUSE_SECONDS_MAX,
    SETTLED_SECONDS,
    LocalCluster,
    Member,
    MemberFailedError,
    role_words,
)
from services.replica_role import ReplicaRole
from tests.support.waiting import wait_until

WAIT_SECONDS_MAX = 30
SLEEPS = "import signal; print('ready', flush=True); signal.pause()"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def member_of(program: str, tmp_path: pathlib.Path, clock: Clock) -> Member:
    return Member("one", [sys.executable, "-c", program], os.environ, tmp_path / "logs" / "one.log", clock)


def wait_until_ended(member: Member) -> None:
    wait_until(lambda: not member.is_running())


def test_a_process_that_was_killed_is_started_again_after_its_pause(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    member = member_of(SLEEPS, tmp_path, clock)
    member.start()
    first = member.pid
    os.kill(first, signal.SIGKILL)
    wait_until_ended(member)

    member.keep_running()
    assert not member.is_running()
    clock.seconds += PAUSE_SECONDS_FIRST
    member.keep_running()

    assert member.is_running()
    assert member.pid != first
    member.ask_to_stop()
    member.wait_until_stopped(WAIT_SECONDS_MAX)
    assert not member.is_running()


def test_pauses_grow_while_it_ends_at_once_and_begin_anew_when_it_has_run(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    member = member_of("import sys; sys.exit(1)", tmp_path, clock)
    member.start()
    pauses = []
    for _ in range(7):
        wait_until_ended(member)
        pause = 0.0
        member.keep_running()
        while not member.is_running() and pause < 2 * PAUSE_SECONDS_MAX and member._start_at is not None:
            pause = member._start_at - clock.seconds
            clock.seconds = member._start_at
            member.keep_running()
        pauses.append(round(pause, 3))
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]

    wait_until_ended(member)
    clock.seconds += SETTLED_SECONDS
    member.keep_running()
    clock.seconds += PAUSE_SECONDS_FIRST
    before = member.pid
    member.keep_running()
    assert member.pid != before
    wait_until_ended(member)


def test_a_process_that_refuses_its_settings_ends_the_cluster_with_its_last_words(tmp_path: pathlib.Path) -> None:
    member = member_of("print('unknown setting'); raise SystemExit(2)", tmp_path, Clock())
    member.start()
    wait_until_ended(member)

    with pytest.raises(MemberFailedError, match="unknown setting") as failed:
        member.keep_running()
    assert failed.value.exit_code == 2


def test_a_tethered_process_dies_with_a_starter_that_is_killed() -> None:
    program = (
        "import subprocess, signal, sys\n"
        "from deploy.cluster.tether import tethered\n"
        f"child = subprocess.Popen(tethered([sys.executable, '-c', {SLEEPS!r}]), stdout=subprocess.PIPE, text=True,\n"
        "                         start_new_session=True)\n"
        "assert child.stdout.readline() == 'ready\\n'\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    child = os.pidfd_open(int(starter.stdout.readline()))
    try:
        starter.kill()
        starter.wait(WAIT_SECONDS_MAX)
        ended, _, _ = select.select([child], [], [], WAIT_SECONDS_MAX)
        assert ended
    finally:
        os.close(child)
        starter.stdout.close()


FOLLOWS = ReplicaRole(leads=False)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"r1": ReplicaRole(True, 3), "r2": FOLLOWS, "r3": None}, {"r1": "leader", "r2": "follower", "r3": "away"}),
        ({"r1": ReplicaRole(True, 3), "r2": ReplicaRole(True, 4)}, {"r1": "away", "r2": "leader"}),
        ({"r1": None, "r2": FOLLOWS}, {"r1": "away", "r2": "follower"}),
    ],
    ids=["one leads", "a deposed one does not know it yet", "nobody leads"],
)
def test_one_replica_at_most_is_called_the_leader(roles, words) -> None:
    assert role_words(roles) == words


def test_a_replica_that_the_leader_sends_nothing_to_is_not_called_a_follower() -> None:
    """Its log is damaged, or it was refused: it answers, but holds no copy that anyone could count on."""
    roles = {"r1": ReplicaRole(True, 3), "r2": FOLLOWS, "r3": FOLLOWS, "r4": None}
    words = role_words(roles, {"r1": frozenset({"r2"})})
    assert words == {"r1": "leader", "r2": "follower", "r3": "detached", "r4": "away"}


def test_all_replicas_and_the_gateway_are_told_of_one_door_and_one_name_server(tmp_path: pathlib.Path) -> None:
    layout = Layout.of(tmp_path, 2)
    cluster = LocalCluster(layout, "etcd", tmp_path / "status", environ={}, nameserver_port=0, remoting_port=0)
    nameserver, door = (f"127.0.0.1:{layout.front_ports[name]}" for name in ("nameserver", "remoting"))
    for replica in cluster._replicas.values():
        assert replica._environ["REPUT_STORE_HOST"] == door
        assert replica._environ["REPUT_NAMESERVERS"] == nameserver
    gateway = cluster._gateway
    assert list(gateway._command[-4:]) == ["-m", "deploy.beside", "gateway", "nameserver"]
    assert gateway._environ["REPUT_GATEWAY_REMOTING_ADDRESS"] == door
    assert gateway._environ["REPUT_NAMESERVER_REMOTING_ADDRESS"] == nameserver


def test_the_name_server_of_a_cluster_shows_the_gateways_certificate(tmp_path: pathlib.Path) -> None:
    """Its door takes TLS only, and a client of RocketMQ uses TLS for both or for neither."""
    names = {"REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": "a.crt", "REPUT_GATEWAY_PUBLIC_TLS_KEY": "a.key"}
    cluster = LocalCluster(Layout.of(tmp_path, 1), "etcd", tmp_path / "status", environ=names, nameserver_port=0)
    told = {name.replace("GATEWAY", "NAMESERVER"): value for name, value in names.items()}
    assert told.items() <= cluster._gateway._environ.items()


def test_a_cluster_whose_remoting_ports_are_off_has_none_of_both(tmp_path: pathlib.Path) -> None:
    layout = Layout.of(tmp_path, 1)
    cluster = LocalCluster(layout, "etcd", tmp_path / "status", environ={}, nameserver_port="off", remoting_port="off")
    assert list(cluster._gateway._command[-2:]) == ["-m", "gateway"]
    assert cluster._gateway._environ["REPUT_GATEWAY_REMOTING_ADDRESS"] == "off"
    assert "REPUT_NAMESERVERS" not in cluster._replicas["r1"]._environ
