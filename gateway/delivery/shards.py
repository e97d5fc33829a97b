"""The consumer services of the shards, and the threads that follow their arrivals."""

from collections.abc import Callable

from gateway.delivery.followed import FollowedShards, StreamFollower
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Delivering
from reput.consumer.v1.consumer_service_pb2 import WatchArrivalsResponse


class DeliveryShards(FollowedShards[Delivering]):
    """A DeliveringSource. Each shard has a thread that follows its arrivals.

    Args:
        room: is told of arrivals.

    Attributes:
        on_arrivals: called with each shard's name and arrivals, after the room, in the thread that follows the shard.
    """

    def __init__(self, room: WaitingRoom) -> None:
        self.on_arrivals: list[Callable[[str, WatchArrivalsResponse], object]] = []

        def follow(delivering: Delivering) -> StreamFollower:
            name = delivering.broker_name
            return StreamFollower(
                "arrivals",
                name,
                delivering.arrivals,
                lambda arrivals: self._arrive(room, name, arrivals),
                lambda: room.lose_sight(name),
            )

        super().__init__("consumer", "delivers", follow)

    def _arrive(self, room: WaitingRoom, broker_name: str, arrivals: WatchArrivalsResponse) -> None:
        room.arrive(broker_name, arrivals)
        for hear in self.on_arrivals:
            hear(broker_name, arrivals)
