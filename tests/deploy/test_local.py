"""`reput serve`: six services that start, serve and end as one."""

import fcntl
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.hosts import ChildDiedError, ThisProcess
from deploy.local import LocalStack, Replica
from deploy.modules import MODULES
from deploy.ports import free_ports
from deploy.remoting_ports import REMOTING_SETTINGS
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.rocketmq.address import parse_address
from services.rocketmq.codes import ResponseCode
from services.rocketmq.command import Command
from services.rocketmq.fastjson import loads
from tests.nameserver_svc.scenario import route
from tests.support.processes import wait_until_gone
from tests.support.remoting import RemotingClient
from tests.support.stack import NO_REMOTING, HostedStack, Stack, hosted_stack, new_message
from tests.support.waiting import wait_until

END_SECONDS_MAX = 20
SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576",
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
}


def assert_stopped_in_order(log: str, *, is_single: bool = False) -> None:
    """By the lines in which the services say that they have stopped; `is_single`: all in one process."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    # The gateway's process has the name server, too.
    order = list(dict.fromkeys(event["service"] for event in events if event["event"] == "server.stopped"))
    assert order[0] == "gateway"
    if (
        not is_single
    ):  # the consumer service says so when those of its process have ended, too; its own end came before theirs
        order.insert(1, order.pop(4))
        assert order[1:3] == ["consumer", "schedule"]
    assert set(order[1:3]) == {"consumer", "schedule"}
    assert set(order[3:5]) == {"consumequeue", "index"}
    assert order[5:] == ["commitlog"]


@pytest.fixture(scope="module")
def addressed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    """With an address for one service and one for the command."""
    settings = {**SMALL_FILES, "REPUT_COMMITLOG_ADDRESS": "127.0.0.1:0", "REPUT_ADDRESS": "127.0.0.1:9"}
    with hosted_stack(tmp_path_factory.mktemp("addressed") / "store", settings=settings) as stack:
        yield stack


def test_every_service_answers_at_its_address_and_sigterm_drains_against_the_flow_of_a_request(
    tmp_path: pathlib.Path,
) -> None:
    stack = Stack(tmp_path / "store", "--nameserver-port", "0", "--remoting-port", "0", settings=SMALL_FILES)
    children = stack.children()
    assert set(children) == set(MODULES.values()) - {"nameserver_svc"}  # it is in the gateway's process
    inner = {"gateway", "commitlog", "consumequeue", "index", "consumer", "schedule"}
    assert inner | {"console", "nameserver", "remoting"} == set(stack.addresses)
    assert stack.addresses["gateway"].startswith("127.0.0.1:")
    services = {name: address for name, address in stack.addresses.items() if name in inner}
    with socket.create_connection(parse_address(stack.addresses["nameserver"]), 20) as connected:
        client = RemotingClient(connected)
        wait_until(lambda: client.ask(route("TBW102").command()).code == 0, "the shard is registered")
        (broker,) = loads(client.ask(route("TBW102").command()).body)["brokerDatas"]
        assert broker["brokerAddrs"] == {"0": stack.addresses["remoting"]}
    status = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=10).services
    (log,) = [row for row in status if row.service == "commitlog"]
    assert (dict(log.nameservers), log.broker_address) == (
        {stack.addresses["nameserver"]: True},
        stack.addresses["remoting"],
    )
    with socket.create_connection(parse_address(stack.addresses["remoting"]), 20) as connected:
        assert RemotingClient(connected).ask(Command(12_345, opaque=7)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    for name, address in services.items():
        with grpc.insecure_channel(address) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            if name == "commitlog":
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

    assert stack.stop() == 0

    assert_stopped_in_order(stack.log())
    wait_until_gone(list(children.values()))


def test_children_stay_in_the_process_group_and_die_with_a_killed_parent(tmp_path: pathlib.Path) -> None:
    stack = Stack(tmp_path / "store", settings=SMALL_FILES)
    children = stack.children()
    try:
        modules = {"commitlog_svc", "consumequeue_svc", "index_svc", "consumer_svc", "schedule_svc"}
        assert {"gateway", *modules} == set(children)
        assert {os.getpgid(stack.process.pid)} == {os.getpgid(pid) for pid in children.values()}
    finally:
        stack.kill()
    wait_until_gone(list(children.values()))


def test_ctrl_c_drains_in_order_although_it_reaches_the_whole_group(tmp_path: pathlib.Path) -> None:
    """Named after the disorder it prevents: a terminal sends SIGINT to every process of the group at once."""
    port_file = tmp_path / "ports.json"
    log_path = tmp_path / "log"
    command = [sys.executable, "-m", "cli.main", "serve", "--store", str(tmp_path / "store"), "--gateway-port", "0"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            [*command, "--nameserver-port", "0", "--remoting-port", "0", "--port-file", str(port_file)],
            env={**inherited, **SMALL_FILES}, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    assert process.stderr is not None
    seen = b""
    while b"reput: serving" not in seen:
        line = process.stderr.readline()
        assert line, seen.decode()
        seen += line
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()

    assert process.wait(END_SECONDS_MAX) == 0
    assert_stopped_in_order((seen + rest).decode())
    assert not port_file.exists(), "nobody answers there any more"


def test_a_child_that_dies_ends_the_stack_with_its_code_and_is_named(tmp_path: pathlib.Path) -> None:
    stack = Stack(tmp_path / "store", settings=SMALL_FILES)
    children = stack.children()
    os.kill(children["index_svc"], signal.SIGKILL)

    assert stack.process.wait(END_SECONDS_MAX) == 128 + signal.SIGKILL
    assert "consumer, consumequeue, index, schedule ended with exit code 137" in stack.log()
    stack.stop()
    wait_until_gone(list(children.values()))


@pytest.mark.parametrize("name", ["index", "consumer"])
def test_a_follower_that_ends_by_itself_ends_its_process_and_is_named_with_its_reason(
    tmp_path: pathlib.Path, name: str
) -> None:
    lock = tmp_path / "store" / "reput" / name / "lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError) as ended:
            Stack(tmp_path / "store", settings=SMALL_FILES)
    (line,) = [line for line in str(ended.value).splitlines() if "ended with exit code" in line]
    assert line.startswith(f"reput: {name} ended with exit code 1: ")
    assert str(lock.parent) in line


def test_a_stale_port_file_is_gone_before_anything_starts(tmp_path: pathlib.Path) -> None:
    """A stack that cannot start must not leave an older one's addresses standing."""
    port_file = tmp_path / "ports.json"
    port_file.write_text('{"gateway": "127.0.0.1:1"}')
    store = tmp_path / "store"
    (store / "consumequeue_r").mkdir(parents=True)
    (store / "commitlog").mkdir()
    # The cause itself stands in what the stack says at the end.
    with pytest.raises(ChildDiedError, match=r"ended with exit code [1-9].*consumequeue_r"):
        hosted_stack(store, port_file=port_file)
    assert not port_file.exists()


def test_two_stacks_do_not_clash(addressed: HostedStack, tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store", settings=SMALL_FILES) as plain:
        assert not set(plain.addresses.values()) & set(addressed.addresses.values())


def test_inner_services_listen_where_settings_say_also_on_port_0(addressed: HostedStack) -> None:
    assert addressed.addresses["commitlog"].startswith("127.0.0.1:")
    assert not addressed.addresses["commitlog"].endswith(":0")
    addressed.wait_until_built()


def test_the_commands_own_setting_does_not_disturb_the_services(addressed: HostedStack) -> None:
    assert addressed.addresses["gateway"] != "127.0.0.1:9"


def test_queries_are_answered_as_soon_as_the_port_file_is_there(copy_of_broker_store: pathlib.Path) -> None:
    """Not STORE_RECOVERING: queues and index are open by then, built or not."""
    for _ in range(2):
        with hosted_stack(copy_of_broker_store) as stack:
            assert stack.gateway.ListTopics(pb.ListTopicsRequest(), timeout=10).topics
            request = pb.QueryMessageByKeyRequest(topic="b_order", key="AaBB")
            stack.gateway.QueryMessageByKey(request, timeout=10)


def test_one_process_serves_the_same_addresses_and_ends_in_the_same_order(tmp_path: pathlib.Path) -> None:
    stack = Stack(tmp_path / "store", "--single-process", settings=SMALL_FILES)
    assert {"gateway", "commitlog", "consumequeue", "index", "consumer", "schedule", "console"} == set(stack.addresses)
    assert stack.children() == {}
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[new_message("Orders", b"body")]), timeout=20)
    stack.wait_until_built()
    assert stat.S_IMODE((tmp_path / "store" / "commitlog" / f"{0:020}").stat().st_mode) == 0o640
    assert stack.stop() == 0
    assert_stopped_in_order(stack.log(), is_single=True)


def test_a_second_stack_of_a_machine_starts_without_the_default_ports_of_the_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default_ports = dict(zip(REMOTING_SETTINGS, free_ports(2), strict=True))
    for key, port in default_ports.items():
        monkeypatch.setitem(REMOTING_SETTINGS, key, (*REMOTING_SETTINGS[key][:2], port))
    as_users_have_it = SMALL_FILES | dict.fromkeys(NO_REMOTING, "")
    with hosted_stack(tmp_path / "a", settings=as_users_have_it) as first:
        assert {key: first.addresses[key] for key in default_ports} == {
            key: f"127.0.0.1:{port}" for key, port in default_ports.items()
        }
        with hosted_stack(tmp_path / "b", settings=as_users_have_it) as second:
            assert not set(default_ports) & set(second.addresses)
            assert [line for line in second.background.said if "no name server and no remoting door" in line]
            second.gateway.AppendMessages(
                pb.AppendMessagesRequest(messages=[new_message("Orders", b"body")]), timeout=20
            )
        with socket.create_connection(parse_address(first.addresses["nameserver"]), 20) as connected:
            client = RemotingClient(connected)
            wait_until(lambda: client.ask(route("TBW102").command()).code == 0, "the first one's shard is registered")
            (broker,) = loads(client.ask(route("TBW102").command()).body)["brokerDatas"]
            assert broker["brokerAddrs"] == {"0": first.addresses["remoting"]}


class Hanging:
    """A service that does not end when it is asked to; see `subprocess.Popen`."""

    pid = os.getpid()
    returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("the service", timeout)
        return self.returncode


class Ending(Hanging):
    """A service that ends when it is asked to."""

    def terminate(self) -> None:
        self.returncode = 0


class HostOf(ThisProcess):
    """Starts services that serve nothing; some of them hang."""

    def __init__(self, *hanging: str) -> None:
        super().__init__()
        self.hanging = hanging

    def start(self, name: str, environ: Mapping[str, str], beside: Sequence[str] = ()) -> Hanging:
        pathlib.Path(environ["REPUT_ADDRESS_FILE"]).write_text("127.0.0.1:1")
        pathlib.Path(environ["REPUT_READY_FILE"]).touch()
        return Hanging() if name in self.hanging else Ending()


class HostOfProcesses(HostOf):
    """Notes which processes it starts: the services of each, and its settings."""

    has_processes = True

    def __init__(self, *hanging: str) -> None:
        super().__init__(*hanging)
        self.started: dict[tuple[str, ...], Mapping[str, str]] = {}

    def start(self, name: str, environ: Mapping[str, str], beside: Sequence[str] = ()) -> Hanging:
        self.started[(name, *beside)] = environ
        for each in (name, *beside):
            pathlib.Path(environ["REPUT_ADDRESS_FILE"]).with_stem(each).write_text("127.0.0.1:1")
            pathlib.Path(environ["REPUT_READY_FILE"]).with_stem(each).touch()
        return super().start(name, environ, beside)


TOGETHER = ("consumer", "consumequeue", "index", "schedule")
# Where the services of a replica listen; by default they take free ports, which nobody knows before.
KNOWN = {f"REPUT_{name.upper()}_ADDRESS": f"127.0.0.1:{port}" for port, name in enumerate(("commitlog", *TOGETHER), 1)}
A_REPLICA = Replica("r1", "etcd://127.0.0.1:1/reput")


@pytest.mark.parametrize(
    ("given", "replica", "environ", "are_together"),
    [
        ({}, None, {}, True),
        ({"followers_apart": True}, None, {}, False),
        ({}, None, {"REPUT_INDEX_ADDRESS": "127.0.0.1:0"}, True),  # no follower calls the index
        ({}, None, {"REPUT_CONSUMEQUEUE_ADDRESS": "127.0.0.1:0"}, False),
        ({}, None, {"REPUT_CONSUMEQUEUE_ADDRESS": "0.0.0.0:7"}, False),
        ({}, A_REPLICA, KNOWN, True),
        ({}, A_REPLICA, {}, False),
    ],
)
def test_followers_share_a_process_where_they_know_one_anothers_addresses(
    tmp_path: pathlib.Path, given: dict[str, bool], replica: Replica | None, environ: dict[str, str], are_together: bool
) -> None:
    host = HostOfProcesses()
    stack = LocalStack(
        tmp_path, is_private=replica is None, console_port="off", environ=environ, host=host, replica=replica, **given
    )
    with stack.started() as failure:
        assert failure is None

    followers = [services for services in host.started if set(services) & set(TOGETHER)]
    assert followers == (
        [TOGETHER] if are_together else [(name,) for name in ("consumequeue", "index", "consumer", "schedule")]
    )
    for services in followers:
        settings = host.started[services]
        assert pathlib.Path(settings["REPUT_READY_FILE"]).name == f"{services[0]}.ready"
        assert all(settings.get(f"REPUT_{name.upper()}_ADDRESS") for name in services)
        assert settings["REPUT_CONSUMEQUEUE_TARGET"] if "consumer" in services else True


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:7"])
def test_the_gateway_calls_a_follower_that_shares_a_process_where_it_listens(
    tmp_path: pathlib.Path, address: str
) -> None:
    """Named after a bug: it called the address of the setting, where port 0 leads nowhere."""
    host = HostOfProcesses()
    environ = {"REPUT_INDEX_ADDRESS": address}
    with LocalStack(tmp_path, is_private=True, console_port="off", environ=environ, host=host).started() as failure:
        assert failure is None

    assert TOGETHER in host.started
    assert host.started[("gateway",)]["REPUT_INDEX_TARGET"] == "127.0.0.1:1", "what its address file says"


@pytest.mark.parametrize("hanging", [(), ("gateway",), ("schedule", "commitlog")])
def test_a_service_that_has_to_be_killed_is_told_and_the_exit_code_says_so(
    hanging: tuple[str, ...], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.DRAIN_SECONDS_MAX", 0.25)
    said: list[str] = []
    host = HostOf(*hanging)
    host.ask_to_stop()
    stack = LocalStack(tmp_path, is_private=True, console_port="off", environ={}, host=host, say=said.append)

    assert stack.run() == (128 + signal.SIGKILL if hanging else 0)
    told = [line for line in said if "killed" in line]
    assert told == [f"{name} did not end within 0.25 s and was killed" for name in hanging]


def test_a_process_of_several_steps_of_the_stop_has_the_time_of_each(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.DRAIN_SECONDS_MAX", 1000.0)
    waited: dict[str, float] = {}

    class Slow(Hanging):
        def __init__(self, name: str) -> None:
            self.name = name

        def terminate(self) -> None:
            pass

        def wait(self, timeout: float | None = None) -> int:
            waited.setdefault(self.name, timeout or 0.0)
            self.returncode = 0
            return 0

    class Host(HostOfProcesses):
        def start(self, name: str, environ: Mapping[str, str], beside: Sequence[str] = ()) -> Hanging:
            super().start(name, environ, beside)
            return Slow(name)

    with LocalStack(tmp_path, is_private=True, console_port="off", environ={}, host=Host()).started():
        pass

    assert {name: round(seconds, -2) for name, seconds in waited.items()} == {
        "gateway": 1000,
        "consumer": 2000,
        "commitlog": 1000,
    }


def test_a_stack_without_standard_streams_starts_and_ends_as_any_other(tmp_path: pathlib.Path) -> None:
    """Named after start scripts that close them: it ended with a traceback, and a file of a service had one's number."""
    errors = tmp_path / "errors"
    command = [sys.executable, "-m", "cli.main", "serve", "--store", str(tmp_path / "store"), "--gateway-port", "0"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" <&- >&- 2>{errors}', *command],
        env={**environ, **NO_REMOTING, "REPUT_COMMITLOG_FLUSH_MODE": "nonsense"}, timeout=60, check=False,
    )  # fmt: skip

    assert "flush_mode" in errors.read_text()
    assert (ended.returncode, "Traceback" in errors.read_text()) == (2, False)


def test_a_stop_goes_on_to_its_end_where_nobody_reads_that_a_service_was_killed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.DRAIN_SECONDS_MAX", 0.01)

    def say(line: str) -> None:
        if "killed" in line:
            raise BrokenPipeError

    host = HostOf("gateway")
    stack = LocalStack(tmp_path, is_private=True, console_port="off", environ={}, host=host, say=say)
    with pytest.raises(BrokenPipeError), stack.started():
        children = dict(stack._children)

    assert [child.poll() for child in children.values()] == [0] * 5 + [-signal.SIGKILL]
