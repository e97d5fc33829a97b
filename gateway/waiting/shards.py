"""The schedule services of the shards, and the threads that follow their checks."""

from gateway.delivery.followed import FollowedShards, StreamFollower
from gateway.ports.waiting import CheckStream, Scheduling
from gateway.waiting.producers import Producers
from reput.schedule.v1 import schedule_service_pb2 as pb


class SchedulingShards(FollowedShards[Scheduling]):
    """A SchedulingSource. Each shard has a thread that follows its checks.

    Args:
        producers: are asked.
        gateway_id: names this gateway to the services.
    """

    def __init__(self, producers: Producers, gateway_id: str) -> None:
        def follow(scheduling: Scheduling) -> StreamFollower:
            def take(answer: pb.WatchChecksResponse) -> None:
                producers.ask_all(scheduling.broker_name, answer.checks)

            def open_stream() -> CheckStream:
                return scheduling.checks(gateway_id)

            return StreamFollower("checks", scheduling.broker_name, open_stream, take)

        super().__init__("schedule", "delivers messages that wait", follow)
