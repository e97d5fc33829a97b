"""What a readiness probe is told of a replica: whether it leads, or may lead next."""

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from commitlog_svc.replication.leading.view import Role
from commitlog_svc.replication.replica import Replica
from commitlog_svc.replication.replicated_log import ReplicaLimits
from services.calling.channel import open_channel
from services.serving.server import IN_SYNC_NAME, ServiceServer
from services.settings.service_settings import ServiceSettings
from tests.commitlog_svc.replication.fixed_leadership import FixedLeadership
from tests.commitlog_svc.support import make_log
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.mark.parametrize(
    ("role", "in_sync", "expected"),
    [
        (Role.UNKNOWN, ("r1", "r2"), False),
        (Role.FOLLOWER, ("r1",), False),
        (Role.FOLLOWER, ("r1", "r2"), True),
        (Role.LEADER, ("r2",), True),
    ],
    ids=["it has read no record", "it has not caught up", "it has caught up", "it leads"],
)
def test_a_replica_says_whether_it_leads_or_may_lead_next(
    tmp_path: Path, role: Role, in_sync: tuple[str, ...], expected: bool
) -> None:
    log = make_log(tmp_path)
    said: list[bool] = []
    replica = Replica("r2", "broker-a", log, ReplicaLimits(), open_channel, lambda why: None, on_in_sync=said.append)
    log.recover()
    leader = "r2" if role is Role.LEADER else "r1"
    leadership = FixedLeadership(role, 1, leader, *in_sync)
    replica.start(leadership)
    try:
        wait_until(lambda: said and said[-1] is expected, lambda: f"it said {said}")
        # What it was is over with the role.
        leadership.set(resigned=True)
        wait_until(lambda: said[-1] is False, lambda: f"it said {said}")
    finally:
        replica.close()
        log.close()


def test_health_by_name_is_told_beside_that_of_the_service() -> None:
    server = ServiceServer("commitlog", ServiceSettings(address="127.0.0.1:0"))
    server.set_health(IN_SYNC_NAME, False)
    address = server.start()
    server.set_serving(True)
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def told(name: str) -> str:
            answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=WAIT_SECONDS_MAX)
            return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

        assert (told(""), told(IN_SYNC_NAME)) == ("SERVING", "NOT_SERVING")
        server.set_health(IN_SYNC_NAME, True)
        assert told(IN_SYNC_NAME) == "SERVING"
    server.stop()
    assert server.serve_until_stopped() == 0
