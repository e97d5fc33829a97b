"""Which queues each member of a group reads: RocketMQ's AllocateMessageQueueStrategy, with its names and its results (5.3.3).

Every member computes its own share from the same sorted lists, so the members need not talk to each other.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

# Of RocketMQ's AllocateMessageQueueConsistentHash.
VIRTUAL_NODE_COUNT = 10


class MessageQueue(NamedTuple):
    """A queue of a topic in a shard. Queues are ordered as RocketMQ orders them.

    Attributes:
        topic: the topic.
        broker_name: the shard.
        queue_id: queue inside the topic.
    """

    topic: str
    broker_name: str
    queue_id: int


Queues = Sequence[MessageQueue]
# The share of a member: its place among all members, all members, all queues; both sorted.
AllocationStrategy = Callable[[int, Sequence[str], Queues], Queues]


def averagely(place: int, members: Sequence[str], queues: Queues) -> Queues:
    """AVG: neighbouring queues, as many as the others or one more."""
    size, rest = divmod(len(queues), len(members))
    begin = place * size + min(place, rest)
    return queues[begin : begin + size + (place < rest)]


def averagely_by_circle(place: int, members: Sequence[str], queues: Queues) -> Queues:
    """AVG_BY_CIRCLE: the queues are dealt out in turn."""
    return queues[place :: len(members)]


def machine_room(rooms: Collection[str]) -> AllocationStrategy:
    """MACHINE_ROOM: only queues of shards named `ROOM@NAME` whose room is one of these; what is left over goes to the first."""

    def share(place: int, members: Sequence[str], queues: Queues) -> Queues:
        near = [queue for queue in queues if _room_of(queue.broker_name) in rooms]
        size, rest = divmod(len(near), len(members))
        left_over = [near[size * len(members) + place]] if place < rest else []
        return near[place * size : (place + 1) * size] + left_over

    return share


def consistent_hash(place: int, members: Sequence[str], queues: Queues) -> Queues:
    """CONSISTENT_HASH: a join or leave moves few queues."""
    ring: dict[int, int] = {}
    for number, member in enumerate(members):
        for replica in range(VIRTUAL_NODE_COUNT):
            ring[_hash(f"{member}-{replica}")] = number
    points = sorted(ring)

    def owner(queue: MessageQueue) -> int:
        name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[points[bisect_left(points, _hash(name)) % len(points)]]

    return [queue for queue in queues if owner(queue) == place]


STRATEGIES: dict[str, AllocationStrategy] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
    "CONSISTENT_HASH": consistent_hash,
}


def strategy_of(name: str, machine_rooms: Collection[str] = ()) -> AllocationStrategy:
    """The strategy of RocketMQ's name.

    Raises:
        ValueError: there is none of that name, or MACHINE_ROOM has no room.
    """
    if name == "MACHINE_ROOM":
        if not machine_rooms:
            raise ValueError("MACHINE_ROOM needs machine_rooms: name the rooms whose shards are read")
        return machine_room(frozenset(machine_rooms))
    if name not in STRATEGIES:
        raise ValueError(f"allocation is {name!r}: {', '.join(sorted([*STRATEGIES, 'MACHINE_ROOM']))} are possible")
    return STRATEGIES[name]


def share_of(
    strategy: AllocationStrategy, member: str, members: Collection[str], queues: Collection[MessageQueue]
) -> Queues:
    """The queues of a member; none while the group does not know it."""
    sorted_members = sorted(set(members))
    if member not in sorted_members:
        return ()
    return tuple(strategy(sorted_members.index(member), sorted_members, sorted(set(queues))))


def _room_of(broker_name: str) -> str:
    # Java's split drops empty texts at the end.
    parts = broker_name.split("@")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else ""


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
