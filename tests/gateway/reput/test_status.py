"""What the gateway tells of the services behind it is what they say themselves."""

import grpc

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES
from gateway.reput.status import service_status_of
from gateway.shards.remote import open_shard
from gateway.shards.targets import ShardTargets
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as queue_grpc
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.consumer.v1 import consumer_service_pb2_grpc as consumer_grpc
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from reput.schedule.v1 import schedule_service_pb2_grpc as schedule_grpc
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings


class Recovering(pb_grpc.CommitLogServiceServicer):
    def GetStatus(self, request, context):
        recovery = pb.RecoveryProgress(begin_offset=10, next_offset=30, end_offset=90)
        return pb.GetStatusResponse(state="recovering", problem="it takes a while", recovery=recovery)


class Retrying(queue_grpc.ConsumeQueueServiceServicer):
    def GetStatus(self, request, context):
        return queue_pb.GetStatusResponse(state="retrying", last_error="no space left", failure_count=3)


class Delivering(consumer_grpc.ConsumerServiceServicer):
    def GetStatus(self, request, context):
        return consumer_pb.GetStatusResponse(
            next_offset=70, log_end_offset=90, state="serving", group_count=3, in_flight_count=1 << 33, client_count=5
        )


class Waiting(schedule_grpc.ScheduleServiceServicer):
    def GetStatus(self, request, context):
        answer = schedule_pb.GetStatusResponse(
            next_offset=60, log_end_offset=90, catching_up=True, last_error="no space left",
            delayed_count=2, timer_count=1 << 33, transaction_count=5,
        )  # fmt: skip
        answer.oldest_due_time.FromMilliseconds(1_700_000_000_123)
        answer.delay_levels.add(level=3, next_offset=7, max_offset=9)
        return answer


def test_problem_and_recovery_of_each_service_are_passed_on_and_who_is_silent_has_an_error() -> None:
    servers = []
    for add, servicer in (
        (pb_grpc.add_CommitLogServiceServicer_to_server, Recovering()),
        (queue_grpc.add_ConsumeQueueServiceServicer_to_server, Retrying()),
        (consumer_grpc.add_ConsumerServiceServicer_to_server, Delivering()),
        (schedule_grpc.add_ScheduleServiceServicer_to_server, Waiting()),
    ):
        server = ServiceServer("test", ServiceSettings())
        server.add("reput.test", add, servicer)
        server.start()
        servers.append(server)
    log_address, queue_address, consumer_address, schedule_address = (server.address for server in servers)
    opened = open_shard(
        ShardTargets("broker-a", log_address, queue_address, "127.0.0.1:1", consumer_address, schedule_address)
    )

    rows = {
        row.status.service: service_status_of("broker-a", row)
        for row in opened.shard.call(STATUSES, None, Deadline.after(20.0))
    }

    log = rows["commitlog"]
    assert (log.state, log.problem, log.catching_up) == ("recovering", "it takes a while", True)
    assert (log.recovery_begin_offset, log.recovery_next_offset, log.recovery_end_offset) == (10, 30, 90)
    assert (rows["consumequeue"].state, rows["consumequeue"].problem) == ("retrying", "no space left")
    assert rows["index"].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
    consumer = rows["consumer"]
    assert (consumer.state, consumer.next_offset, consumer.log_end_offset) == ("serving", 70, 90)
    assert (consumer.group_count, consumer.in_flight_count, consumer.client_count) == (3, 1 << 33, 5)
    schedule = rows["schedule"]
    assert (schedule.state, schedule.problem, schedule.catching_up) == ("catching-up", "no space left", True)
    assert (schedule.next_offset, schedule.log_end_offset) == (60, 90)
    assert (schedule.scheduled_count, schedule.timer_count, schedule.transaction_count) == ((1 << 33) + 2, 1 << 33, 5)
    assert [(each.level, each.next_offset, each.max_offset) for each in schedule.delay_levels] == [(3, 7, 9)]
    assert schedule.oldest_due_time.ToMilliseconds() == 1_700_000_000_123
    assert not consumer.HasField("oldest_due_time")
    opened.close()
    for server in servers:
        server.stop()
        server.serve_until_stopped()


def test_a_shard_without_a_consumer_and_a_schedule_service_has_no_rows_of_them() -> None:
    opened = open_shard(ShardTargets("broker-a", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"))

    rows = opened.shard.call(STATUSES, None, Deadline.after(10.0))

    assert [row.status.service for row in rows] == ["commitlog", "consumequeue", "index"]
    opened.close()
