"""One case: clients append, something happens to the shard, and afterwards everything is judged and its figure printed."""

import contextlib
from collections.abc import Iterator

from tests.cluster.history import Producers, lost_and_doubled, problems_of
from tests.cluster.shard import Shard

AT_FIRST_COUNT = 30
# What a case without a change of the leader may take: replicas that are away leave the set after 3 s.
SHORT_SECONDS_MAX = 6.0
# The promise is 10 s with default timeouts; beside other tests on a busy machine it takes longer.
FAILOVER_SECONDS_MAX = 30.0


@contextlib.contextmanager
def under_load(shard: Shard, topic: str, case: str) -> Iterator[Producers]:
    """Producers append inside the block and until they have gone on after it; nothing is lost, doubled or out of order."""
    with Producers(shard.gateway, topic) as producers:
        producers.wait_for(AT_FIRST_COUNT)
        yield producers
        producers.wait_for(AT_FIRST_COUNT)
    shard.settle()
    assert problems_of(shard.stores, topic, producers) == []
    lost, doubled = lost_and_doubled(shard.stores["r1"], topic, producers)
    print(
        f"{case}: {producers.longest_silence():.1f} s without acknowledgements, {len(producers.acknowledged)} acknowledged, "
        f"{lost} lost, {doubled} doubled, {len(producers.failures)} failed calls"
    )


def epoch_of(shard: Shard, name: str) -> int:
    """The epoch in which a replica leads; 0 when it does not."""
    status = shard.status(name)
    return status.epoch if status is not None and status.role == "leader" else 0
