"""The name server beside RocketMQ's: the real one answers as it is recorded, and a real broker registers at ours."""

import contextlib
import json
import os
import pathlib
import socket
from collections.abc import Iterator

import pytest

from reput.nameserver.v1 import nameserver_service_pb2 as pb
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from tests.nameserver_svc.scenario import ANSWERS, STEPS, Ask, End, comparable
from tests.rocketmq import real_broker
from tests.support.remoting import RemotingClient
from tests.support.service import HostedAt, hosted_service
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]


class RocketMQWithOurNameServer(real_broker.RealRocketMQ):
    """A real broker that registers at our name server, which the test starts."""

    shares_names = False

    def start_name_server(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)


def test_the_real_name_server_answers_as_it_is_recorded(tmp_path: pathlib.Path) -> None:
    """RECORD=1 writes the record anew."""
    real = real_broker.RealRocketMQ(tmp_path / "store", tmp_path / "rocketmq")
    answers: list[Command | None] = []
    with contextlib.ExitStack() as stack:
        stack.callback(real.stop)
        real.start_name_server()
        connections: dict[int, RemotingClient] = {}

        def connection(number: int) -> RemotingClient:
            if number not in connections:
                made = socket.create_connection(("127.0.0.1", real.namesrv_port), 20)
                connections[number] = RemotingClient(stack.enter_context(made))
            return connections[number]

        for number, step in enumerate(STEPS):
            if isinstance(step, End):
                connections.pop(step.connection).socket.close()
                answers.append(None)
                continue
            before = STEPS[number - 1] if number else None
            goes = isinstance(before, End) or (before is not None and before.code == RequestCode.UNREGISTER_BROKER)
            if goes and not os.environ.get("RECORD"):
                # RocketMQ takes brokers out in a thread of its own.
                wanted = recorded(number)
                wait_until(
                    lambda step=step, wanted=wanted: comparable(connection(0).ask(step.command()), "all") == wanted,
                    str(step),
                )
            answers.append(connection(step.connection).ask(step.command()))
    rows = [
        None
        if each is None
        else {"code": each.code, "remark": each.remark, "fields": dict(each.fields), "body": each.body.decode()}
        for each in answers
    ]
    if os.environ.get("RECORD"):
        ANSWERS.write_text("".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows))
    different = [
        (step, comparable(answer, step.compares), recorded(number, step.compares))
        for number, (step, answer) in enumerate(zip(STEPS, answers, strict=True))
        if isinstance(step, Ask)
        and answer is not None
        and comparable(answer, step.compares) != recorded(number, step.compares)
    ]
    assert different == []


def recorded(number: int, compares: str = "all") -> object:
    row = json.loads(ANSWERS.read_text(encoding="utf-8").splitlines()[number])
    answer = Command(row["code"], row["fields"], row["body"].encode(), remark=row["remark"])
    return comparable(answer, compares)


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[tuple[HostedAt, RocketMQWithOurNameServer]]:
    broker = RocketMQWithOurNameServer(tmp_path / "store", tmp_path / "rocketmq", mappedFileSizeCommitLog=1048576)
    settings = {"REPUT_NAMESERVER_REMOTING_ADDRESS": broker.namesrv}
    with hosted_service("nameserver", tmp_path, settings) as nameserver:
        try:
            broker.start()
            yield nameserver, broker
        finally:
            broker.stop()


def test_a_real_broker_registers_at_ours_and_real_clients_and_mqadmin_use_it(
    cluster: tuple[HostedAt, RocketMQWithOurNameServer],
) -> None:
    nameserver, broker = cluster
    address = f"127.0.0.1:{broker.broker_port}"
    (shown,) = nameserver.stub.ListBrokers(pb.ListBrokersRequest()).brokers
    assert (shown.broker_name, shown.cluster_name, shown.addresses[0].address) == (
        "broker-a",
        "DefaultCluster",
        address,
    )

    assert "success" in broker.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-r", "5", "-w", "3")
    (queues,) = nameserver.stub.GetRoute(pb.GetRouteRequest(topic="Orders")).queues
    assert (queues.read_queue_count, queues.write_queue_count, queues.perm) == (5, 3, 6)
    assert len(broker.send("Orders", "order", 10)) == 10
    assert len(broker.consume("Orders", "readers", "tag", "*", 10)) == 10
    listed = broker.mqadmin("topicList").split()
    assert {"Orders", "TBW102", "%RETRY%readers", "broker-a", "DefaultCluster"} <= set(listed)
    assert "broker-a" in broker.mqadmin("clusterList")

    assert "wipe write perm" in broker.mqadmin("wipeWritePerm", "-b", "broker-a")
    assert nameserver.stub.GetRoute(pb.GetRouteRequest(topic="Orders")).queues[0].perm == 4
    broker.mqadmin("addWritePerm", "-b", "broker-a")
    assert nameserver.stub.GetRoute(pb.GetRouteRequest(topic="Orders")).queues[0].perm == 6
    broker.mqadmin("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "Orders", "-v", "broker-a:3")
    (value,) = nameserver.stub.ListKvConfig(pb.ListKvConfigRequest()).values
    assert value == pb.KvConfig(namespace="ORDER_TOPIC_CONFIG", key="Orders", value="broker-a:3")

    assert "success" in broker.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Orders")
    assert "Orders" not in broker.mqadmin("topicList").split()
    broker.stop()
    wait_until(lambda: not nameserver.stub.ListBrokers(pb.ListBrokersRequest()).brokers, "the end of the broker")
