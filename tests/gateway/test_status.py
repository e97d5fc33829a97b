"""What the gateway tells of the services behind it is what they say themselves."""

import grpc

from gateway.ports.deadline import Deadline
from gateway.shards.remote import open_shard
from gateway.shards.targets import ShardTargets
from gateway.status_answer import service_status_of
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as queue_grpc
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings


class Recovering(pb_grpc.CommitLogServiceServicer):
    def GetStatus(self, request, context):
        recovery = pb.RecoveryProgress(begin_offset=10, next_offset=30, end_offset=90)
        return pb.GetStatusResponse(state="recovering", problem="it takes a while", recovery=recovery)


class Retrying(queue_grpc.ConsumeQueueServiceServicer):
    def GetStatus(self, request, context):
        return queue_pb.GetStatusResponse(state="retrying", last_error="no space left", failure_count=3)


def test_problem_and_recovery_of_each_service_are_passed_on_and_who_is_silent_has_an_error() -> None:
    servers = []
    for add, servicer in (
        (pb_grpc.add_CommitLogServiceServicer_to_server, Recovering()),
        (queue_grpc.add_ConsumeQueueServiceServicer_to_server, Retrying()),
    ):
        server = ServiceServer("test", ServiceSettings())
        server.add("reput.test", add, servicer)
        server.start()
        servers.append(server)
    shard = open_shard(ShardTargets("broker-a", servers[0].address, servers[1].address, "127.0.0.1:1")).shard

    rows = {
        status.service: service_status_of("broker-a", status)
        for status in shard.services.statuses(Deadline.after(20.0))
    }

    log = rows["commitlog"]
    assert (log.state, log.problem, log.catching_up) == ("recovering", "it takes a while", True)
    assert (log.recovery_begin_offset, log.recovery_next_offset, log.recovery_end_offset) == (10, 30, 90)
    assert (rows["consumequeue"].state, rows["consumequeue"].problem) == ("retrying", "no space left")
    assert rows["index"].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
    for server in servers:
        server.stop()
        server.serve_until_stopped()
