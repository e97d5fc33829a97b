"""The schedule services of the shards, and the threads that follow their checks."""

from collections.abc import Sequence

from gateway.delivery.followed import FollowedShards, StreamFollower
from gateway.ports.delivery import Message
from gateway.ports.waiting import Check, CheckStream, Scheduling
from gateway.waiting.producers import Producers


class SchedulingShards(FollowedShards[Scheduling[Message]]):
    """A SchedulingSource. Each shard has a thread that follows its checks.

    Args:
        producers: are asked.
        gateway_id: names this gateway to the services.
    """

    def __init__(self, producers: Producers[Message], gateway_id: str) -> None:
        def follow(scheduling: Scheduling[Message]) -> StreamFollower:
            def take(checks: Sequence[Check[Message]]) -> None:
                for check in checks:
                    producers.ask(check)

            def open_stream() -> CheckStream[Message]:
                return scheduling.checks(gateway_id)

            return StreamFollower("checks", scheduling.broker_name, open_stream, take)

        super().__init__("schedule", "delivers messages that wait", follow)
