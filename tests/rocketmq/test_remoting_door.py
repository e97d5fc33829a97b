"""Unmodified clients of RocketMQ and mqadmin on Reput: they know its name server, or a real one, and nothing else of it."""

import contextlib
import pathlib
import re
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import NewMessage
from services.rocketmq.codes import RequestCode
from tests.gateway.remoting.one_group import PoppingMember, PullingMember, Seen
from tests.gateway.remoting.requests import DoorClient
from tests.rocketmq import real_broker, remoting_programs
from tests.support.certificates import Authority
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]


class ReputAsRocketMQ(real_broker.RealRocketMQ):
    """Clients of RocketMQ that find Reput at a name server."""

    def __init__(self, directory: pathlib.Path, nameserver: str) -> None:
        super().__init__(directory / "unused", directory / "rocketmq")
        self._nameserver = nameserver
        self.work.mkdir(parents=True, exist_ok=True)

    @property
    def namesrv(self) -> str:
        return self._nameserver


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostedStack, ReputAsRocketMQ]]:
    directory = tmp_path_factory.mktemp("served")
    with hosted_stack(directory / "store", nameserver_port=0, remoting_port=0) as stack:
        yield stack, ReputAsRocketMQ(directory, stack.addresses["nameserver"])


@pytest.mark.skipif(remoting_programs.why_unavailable() is not None, reason=str(remoting_programs.why_unavailable()))
@pytest.mark.parametrize("program", remoting_programs.PROGRAMS)
def test_unmodified_clients_see_what_they_see_at_rocketmq(
    served: tuple[HostedStack, ReputAsRocketMQ], tmp_path: pathlib.Path, program: str
) -> None:
    stack, clients = served

    def make(topic: str) -> None:
        request = gateway_pb.CreateTopicRequest(topic=topic, queue_count=remoting_programs.QUEUE_COUNT)
        stack.gateway.CreateTopic(request, timeout=WAIT_SECONDS_MAX)

    seen = remoting_programs.run(program, clients.namesrv, stack.addresses["remoting"], tmp_path, make)
    expected = remoting_programs.EXPECTED[program]
    different = {case: (seen.get(case), expected.get(case)) for case in {*seen, *expected}}
    different = {case: (saw, wanted) for case, (saw, wanted) in different.items() if saw != wanted}
    assert different == {}


def test_java_clients_and_mqadmin_use_reput_as_they_use_rocketmq(
    served: tuple[HostedStack, ReputAsRocketMQ],
) -> None:
    stack, clients = served
    door = stack.addresses["remoting"]
    wait_until(lambda: door in clients.mqadmin("clusterList"), "the shard is registered")
    assert "success" in clients.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-r", "4", "-w", "4")
    receipts = clients.send("Orders", "order", 10)
    assert len(receipts) == 10
    read = clients.consume("Orders", "readers", "tag", "*", 10)
    assert {line.split()[0] for line in read} == {f"order{number}" for number in range(10)}

    message_id, offset_id, queue_id, queue_offset = receipts[3]
    assert offset_id[:16] == "7F000001" + f"{int(door.rpartition(':')[2]):08X}"  # where clients dial it
    found = clients.mqadmin("queryMsgByKey", "-t", "Orders", "-k", "order3")
    assert message_id in found
    assert "order3" in clients.mqadmin("queryMsgById", "-t", "Orders", "-i", offset_id)
    assert "order3" in clients.mqadmin("queryMsgByUniqueKey", "-t", "Orders", "-i", message_id)
    at = ("-t", "Orders", "-b", "broker-a", "-i", str(queue_id), "-o", str(queue_offset))
    assert "order3" in clients.mqadmin("queryMsgByOffset", *at)

    ranges = re.findall(r"broker-a\s+(\d)\s+0\s+(\d+)", clients.mqadmin("topicStatus", "-t", "Orders"))
    assert len(ranges) == 4
    assert sum(int(end) for _, end in ranges) == 10
    assert "retryMaxTimes" in clients.mqadmin("getConsumerConfig", "-g", "readers")
    for moment, lag in (("-1", 0), ("0", 10)):
        moved = clients.mqadmin("resetOffsetByTime", "-g", "readers", "-t", "Orders", "-s", moment)
        assert len(re.findall(r"broker-a\s+\d\s+\d", moved)) == 4
        assert f"Consume Diff Total: {lag}\n" in clients.mqadmin("consumerProgress", "-g", "readers")
    assert "success" in clients.mqadmin("updateTopicPerm", "-c", "DefaultCluster", "-t", "Orders", "-p", "4")
    assert "success" in clients.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Orders")
    wait_until(lambda: "Orders" not in clients.mqadmin("topicList").split(), "the topic is gone")


def test_a_java_push_consumer_in_pop_mode_gets_each_message_once_and_what_failed_again(
    served: tuple[HostedStack, ReputAsRocketMQ],
) -> None:
    stack, clients = served
    door = stack.addresses["remoting"]
    wait_until(lambda: door in clients.mqadmin("clusterList"), "the shard is registered")
    assert "success" in clients.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Popped", "-r", "4", "-w", "4")
    assert "success" in clients.mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "poppers")
    mode = ("-t", "Popped", "-g", "poppers", "-m", "POP", "-q", "0")
    assert "success" in clients.mqadmin("setConsumeMode", "-c", "DefaultCluster", *mode)
    assert len(clients.send("Popped", "order", 10)) == 10
    rows = clients.pop("Popped", "poppers", "TagJ || TagK", 10, "order3")
    assert [row[0] for row in rows] == [f"order{number}" for number in range(10)]
    assert {row[0]: row[2] for row in rows} == {f"order{number}": "1" if number == 3 else "0" for number in range(10)}
    handles = {row[0]: row[3].split(" ") for row in rows}
    assert {len(handle) for handle in handles.values()} == {8}
    assert {name for name, handle in handles.items() if handle[4] == "1"} == {"order3"}  # of the retry topic
    assert re.search(r"Consume Diff Total: 0\b", clients.mqadmin("consumerProgress", "-g", "poppers"))


def test_a_java_push_consumer_shares_a_group_with_consumers_of_the_other_doors(
    served: tuple[HostedStack, ReputAsRocketMQ],
) -> None:
    stack, clients = served
    topic, group = "Shared", "sharers"
    stack.gateway.CreateTopic(gateway_pb.CreateTopicRequest(topic=topic, queue_count=6), timeout=WAIT_SECONDS_MAX)
    with contextlib.closing(DoorClient(clients.namesrv)) as names:
        route = RequestCode.GET_ROUTEINFO_BY_TOPIC
        wait_until(lambda: names.call(route, topic=topic).code == 0, "the topic is registered")
    gateway = types.SimpleNamespace(target=stack.addresses["gateway"])
    seen, sent = Seen(), []
    members = [member(gateway, group, topic, seen, 1).start() for member in (PoppingMember, PullingMember)]

    def send() -> None:
        messages = [NewMessage(topic=topic, body=f"m{len(sent) + number}".encode()) for number in range(6)]
        stack.gateway.AppendMessages(gateway_pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
        sent.extend(message.body for message in messages)

    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(clients.pop, topic, group, "*", 5, "none fails")
        wait_until(lambda: send() or pushed.done(), "the push consumer has messages", poll_seconds=0.2)
    by_java = {row[1].encode() for row in pushed.result()}
    wait_until(lambda: by_java.issuperset(seen.missing(sent)), lambda: f"missing: {set(seen.missing(sent)) - by_java}")
    for member in members:
        member.stop()
    assert len(by_java) >= 5
    assert seen.by_door.keys() == {"grpc", "pull"}


ACCESS = """
[[clients]]
name = "shop"
access_keys = {shop-key = "its-secret"}
read = ["Orders"]
write = ["Orders"]
groups = ["shop-*"]
[[clients]]
name = "operators"
access_keys = {operators-key = "their-secret"}
admin = ["*"]
"""


def test_java_clients_and_mqadmin_sign_in_over_tls_and_retry_what_they_do_not_consume(tmp_path: pathlib.Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = authority.issue("server", "localhost", "127.0.0.1")
    access, tls = tmp_path / "access.toml", tmp_path / "tls.properties"
    access.write_text(ACCESS)
    client_side = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority.path,
    }
    tls.write_text("".join(f"{name}={value}\n" for name, value in client_side.items()))
    settings = {
        "REPUT_GATEWAY_AUTH": "on",
        "REPUT_GATEWAY_ACCESS_FILE": str(access),
        "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": str(server.certificate),
        "REPUT_GATEWAY_PUBLIC_TLS_KEY": str(server.key),
    }
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text("accessKey: operators-key\nsecretKey: their-secret\n")
    with (
        hosted_stack(tmp_path / "store", settings=settings, nameserver_port=0, remoting_port=0) as stack,
        contextlib.ExitStack() as ends,
    ):
        flags = ("-Dtls.enable=true", f"-Dtls.config.file={tls}", f"-Drocketmq.home.dir={home}")
        clients = real_broker.Clients(real_broker.VERSION, *flags)
        ends.callback(clients.end)
        java, names = clients.run, stack.addresses["nameserver"]

        def mqadmin(*args: str) -> str:
            return java(real_broker.MQADMIN, *args, "-n", names)

        door = stack.addresses["remoting"]
        wait_until(lambda: door in mqadmin("clusterList"), "the shard is registered")
        assert "success" in mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-r", "2", "-w", "2")
        read = java("SignedClients", names, "shop-key", "its-secret", "Orders", "shop-readers", "3")
        assert sorted(re.findall("> (body [0-9]) 1", read)) == ["body 0", "body 1", "body 2"]
        forged = java("SignedClients", names, "shop-key", "wrong-secret", "Orders", "shop-readers", "3")
        assert "CODE: 16  DESC: the access key is not known" in forged
        assert "success" in mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Bank", "-r", "2", "-w", "2")
        denied = java("SignedClients", names, "shop-key", "its-secret", "Bank", "shop-readers", "3")
        assert "CODE: 16  DESC: shop may not write topic 'Bank'" in denied

        # A user that mqadmin makes signs in, and is an entry of the access file.
        at = ("-b", door)
        assert "success" in mqadmin("createUser", *at, "-u", "alice", "-p", "alice123", "-t", "Normal")
        policies = ("-r", "Topic:Bank,Group:alice-*", "-a", "Pub,Sub", "-d", "ALLOW")
        assert "success" in mqadmin("createAcl", *at, "-s", "User:alice", *policies)
        assert re.search(r"alice\s+null\s+Normal\s+enable", mqadmin("listUser", *at, "-f", "ali"))
        assert re.search(r"User:alice\s+Custom\s+Topic:Bank\s+\[Pub, Sub\]", mqadmin("getAcl", *at, "-s", "User:alice"))
        read = java("SignedClients", names, "alice", "alice123", "Bank", "alice-readers", "3")
        assert sorted(re.findall("> (body [0-9]) 1", read)) == ["body 0", "body 1", "body 2"]
        assert "decision 'DENY' is not supported" in mqadmin(
            "updateAcl", *at, "-s", "User:alice", *policies[:-1], "DENY"
        )
        assert "success" in mqadmin("deleteUser", *at, "-u", "alice")
        assert access.read_text().strip() == ACCESS.strip()


def test_a_shard_of_reput_is_found_at_a_real_name_server_and_leaves_it_at_its_end(tmp_path: pathlib.Path) -> None:
    real = real_broker.RealRocketMQ(tmp_path / "unused", tmp_path / "rocketmq")
    with contextlib.ExitStack() as stack:
        stack.callback(real.stop)
        real.start_name_server()
        settings = {"REPUT_NAMESERVERS": real.namesrv, "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20)}
        with hosted_stack(tmp_path / "store", settings=settings, remoting_port=0) as ours:
            wait_until(lambda: ours.addresses["remoting"] in real.mqadmin("clusterList"), "the registration")
            assert len(real.send("Bills", "bill", 5)) == 5  # a topic that the first message makes
            assert len(real.consume("Bills", "payers", "tag", "*", 5)) == 5
            assert "Bills" in real.mqadmin("topicList").split()
        assert "broker-a" not in real.mqadmin("clusterList")
