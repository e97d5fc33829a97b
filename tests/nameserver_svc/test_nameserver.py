"""The name server as a service: over remoting and gRPC at once, in this process."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from reput.nameserver.v1 import nameserver_service_pb2 as pb
from reput.nameserver.v1 import nameserver_service_pb2_grpc as pb_grpc
from services.rocketmq.address import Address, parse_address
from services.rocketmq.command import Command
from services.rocketmq.fastjson import loads
from services.serving.hosted import HostedService
from store.errors import InvalidSettingError
from tests.nameserver_svc.scenario import TWO, Ask, body, broker, route, topic
from tests.support.remoting import RemotingClient
from tests.support.service import hosted_service
from tests.support.waiting import wait_until


class Served:
    """A name server."""

    def __init__(self, address: Address, stub: pb_grpc.NameServerServiceStub) -> None:
        self.address = address
        self.stub = stub

    @contextlib.contextmanager
    def connection(self) -> Iterator[RemotingClient]:
        with socket.create_connection(self.address, 20) as connected:
            yield RemotingClient(connected)


def ask(client: RemotingClient, step: Ask) -> Command:
    return client.ask(step.command())


@contextlib.contextmanager
def served(tmp_path: Path, **settings: str) -> Iterator[Served]:
    address_file = tmp_path / "remoting"
    fixed = {
        "REPUT_NAMESERVER_REMOTING_ADDRESS": "127.0.0.1:0",
        "REPUT_NAMESERVER_REMOTING_ADDRESS_FILE": str(address_file),
    }
    with hosted_service("nameserver", tmp_path, {**fixed, **settings}) as service:
        address = parse_address(address_file.read_text().strip())
        yield Served(address, service.stub)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


def test_what_a_broker_registers_is_seen_by_clients_and_over_grpc_until_its_connection_ends(server: Served) -> None:
    with server.connection() as client:
        with server.connection() as its:
            assert ask(its, Ask(103, broker("a", "10.0.0.1:10911"), TWO)).code == 0
            assert loads(ask(client, route("t")).body)["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
            (shown,) = server.stub.ListBrokers(pb.ListBrokersRequest()).brokers
            assert (shown.broker_name, shown.cluster_name) == ("a", "c")
            assert [(each.broker_id, each.address) for each in shown.addresses] == [(0, "10.0.0.1:10911")]
            assert shown.addresses[0].seen_time.seconds > 1_500_000_000
            (queues,) = server.stub.GetRoute(pb.GetRouteRequest(topic="u")).queues
            assert queues == pb.BrokerQueues(broker_name="a", read_queue_count=4, write_queue_count=2, perm=4)
        wait_until(lambda: ask(client, route("t")).code == 17, "the end of the broker's connection")
    assert not server.stub.ListBrokers(pb.ListBrokersRequest()).brokers


def test_topics_come_in_pages(server: Served) -> None:
    with server.connection() as its:
        ask(its, Ask(103, broker("a", "1"), body(*(topic(f"t{number:03}") for number in range(150)))))
        names, token = [], ""
        while True:
            page = server.stub.ListTopics(pb.ListTopicsRequest(page_token=token, cluster_name="c"))
            names.append(len(page.topics))
            token = page.next_page_token
            if not token:
                break
        assert names == [64, 64, 22]
        assert not server.stub.ListTopics(pb.ListTopicsRequest(cluster_name="none")).topics
        with pytest.raises(grpc.RpcError, match="page_size is 1001"):
            server.stub.ListTopics(pb.ListTopicsRequest(page_size=1001))


def test_brokers_and_values_come_in_pages(server: Served) -> None:
    with server.connection() as its:
        for number in range(70):
            ask(its, Ask(103, broker(f"b{number:02}", f"10.0.0.1:{number + 1}"), TWO))
        names: list[str] = []
        request = pb.ListBrokersRequest()
        while True:
            page = server.stub.ListBrokers(request)
            names += [each.broker_name for each in page.brokers]
            assert len(page.brokers) <= 64
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert names == [f"b{number:02}" for number in range(70)]
    values = [
        pb.KvConfig(namespace=namespace, key=f"k{number}", value="v" * 65_000)
        for namespace in ("A", "B")
        for number in range(10)
    ]
    for value in reversed(values):
        server.stub.PutKvConfig(pb.PutKvConfigRequest(value=value))
    found: list[pb.KvConfig] = []
    sizes: list[int] = []
    asked = pb.ListKvConfigRequest(page_size=18)
    while True:
        answer = server.stub.ListKvConfig(asked)
        found += answer.values
        sizes.append(len(answer.values))
        if not answer.next_page_token:
            break
        asked.page_token = answer.next_page_token
    assert (found, sizes) == (values, [16, 4])
    only = server.stub.ListKvConfig(pb.ListKvConfigRequest(namespace="B", page_size=3, page_token="B\0k7"))
    assert [each.key for each in only.values] == ["k8", "k9"]
    for method, request_ in (("ListBrokers", pb.ListBrokersRequest), ("ListKvConfig", pb.ListKvConfigRequest)):
        with pytest.raises(grpc.RpcError, match="page_size is 1001"):
            getattr(server.stub, method)(request_(page_size=1001))


def test_commands_over_grpc_change_what_clients_are_told(server: Served) -> None:
    with server.connection() as its:
        ask(its, Ask(103, broker("a", "1"), TWO))
        answer = server.stub.SetWritePerm(pb.SetWritePermRequest(broker_name="a", writable=False))
        assert answer.topic_count == 2
        assert loads(ask(its, route("t")).body)["queueDatas"][0]["perm"] == 4
        server.stub.DeleteTopic(pb.DeleteTopicRequest(topic="t"))
        assert ask(its, route("t")).code == 17
        value = pb.KvConfig(namespace="ORDER_TOPIC_CONFIG", key="u", value="a:2")
        server.stub.PutKvConfig(pb.PutKvConfigRequest(value=value))
        assert ask(its, Ask(101, {"namespace": "ORDER_TOPIC_CONFIG", "key": "u"})).fields == {"value": "a:2"}
        assert list(server.stub.ListKvConfig(pb.ListKvConfigRequest()).values) == [value]
        server.stub.DeleteKvConfig(pb.DeleteKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="u"))
        assert not server.stub.ListKvConfig(pb.ListKvConfigRequest()).values


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason"),
    [
        ("GetRoute", pb.GetRouteRequest(topic="none"), grpc.StatusCode.NOT_FOUND, "no broker has registered"),
        ("DeleteTopic", pb.DeleteTopicRequest(topic="none"), grpc.StatusCode.NOT_FOUND, "no broker has registered"),
        ("SetWritePerm", pb.SetWritePermRequest(broker_name="z"), grpc.StatusCode.NOT_FOUND, "no broker 'z'"),
        ("PutKvConfig", pb.PutKvConfigRequest(), grpc.StatusCode.INVALID_ARGUMENT, "a namespace and a key"),
    ],
)
def test_what_does_not_exist_is_said(server: Served, method: str, request_: object, code: object, reason: str) -> None:
    with pytest.raises(grpc.RpcError, match=reason) as caught:
        getattr(server.stub, method)(request_)
    assert caught.value.code() is code


def test_order_configuration_is_told_with_routes_where_it_is_switched_on(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    more = {"REPUT_NAMESERVER_ORDER_MESSAGE_ENABLE": "true", "REPUT_NAMESERVER_KV_CONFIG_PATH": str(path)}
    with served(tmp_path, **more) as server, server.connection() as its:
        ask(its, Ask(103, broker("a", "1"), TWO))
        ask(its, Ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:8"}))
        assert loads(ask(its, route("t")).body)["orderTopicConf"] == "a:8"
        assert "orderTopicConf" not in loads(ask(its, route("u")).body)
        assert b"orderMessageEnable=true\n" in ask(its, Ask(319)).body
        assert ask(its, Ask(318, body=b"orderMessageEnable=false")).code == 1
    with served(tmp_path, **more) as server, server.connection() as its:
        assert ask(its, Ask(101, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"})).fields == {"value": "a:8"}


def test_a_remoting_port_that_is_taken_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    from nameserver_svc.__main__ import SERVICE

    with socket.create_server(("127.0.0.1", 0)) as taken:
        environ = {
            "REPUT_NAMESERVER_ADDRESS": "127.0.0.1:0",
            "REPUT_NAMESERVER_REMOTING_ADDRESS": f"127.0.0.1:{taken.getsockname()[1]}",
        }
        with pytest.raises(InvalidSettingError, match=r"cannot listen at .* set remoting_address to another one"):
            HostedService(SERVICE, environ, lambda: None)
