"""The consumer services of the shards, and the threads that follow their arrivals."""

from gateway.delivery.followed import FollowedShards, StreamFollower
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Delivering


class DeliveryShards(FollowedShards[Delivering]):
    """A DeliveringSource. Each shard has a thread that follows its arrivals.

    Args:
        room: is told of arrivals.
    """

    def __init__(self, room: WaitingRoom) -> None:
        def follow(delivering: Delivering) -> StreamFollower:
            name = delivering.broker_name
            return StreamFollower(
                "arrivals",
                name,
                delivering.arrivals,
                lambda arrivals: room.arrive(name, arrivals),
                lambda: room.lose_sight(name),
            )

        super().__init__("consumer", "delivers", follow)
