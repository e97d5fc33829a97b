"""Random faults of a shard: a plan that follows from a seed, and what carries it out."""

import contextlib
import dataclasses
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from commitlog_svc.replication.leading.record import ShardRecord
from services.coordination.opening import open_record_store
from store.errors import StoreError
from tests.cluster.shard import BROKER_NAME, COORDINATOR, GATEWAY, Shard, pause
from tests.support.network import both

KINDS = (
    "kill", "kill", "stop", "stop", "cut from replicas", "cut from one replica", "cut from coordinator", "cut from gateway",
    "cut from all", "mute to replicas", "deaf to replicas", "mute to coordinator", "deaf to coordinator", "mute to one replica",
    "cut from coordinator and one replica", "coordinator down", "gateway killed", "hand over", "follower away",
)  # fmt: skip
# Of a shard whose replicas have all services; its processes call each other directly, so nothing is cut.
KINDS_OF_WHOLE_REPLICAS = (
    "kill", "service killed", "service killed", "gateway killed", "gateway killed", "hand over", "follower away",
    "coordinator down",
)  # fmt: skip
LEADER_SHARE = 0.7
COORDINATOR_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens.

    Attributes:
        kind: see KINDS.
        victim: `leader`, whoever it is then, or the number of a replica.
        other: which of the other replicas, where one is meant.
        seconds: how long.
        after_seconds: since the fault before; at the same time as that one while it lasts.
    """

    kind: str
    victim: str
    other: int
    seconds: float
    after_seconds: float


def plan(seed: int, group_count: int, kinds: Sequence[str] = KINDS) -> list[list[Fault]]:
    """Groups of faults that overlap; the shard is well between two groups."""
    dice = random.Random(seed)
    groups = []
    for _ in range(group_count):
        group = []
        for _ in range(dice.choice([1, 1, 2, 2, 3])):
            victim = "leader" if dice.random() < LEADER_SHARE else str(dice.randrange(3))
            seconds = dice.choice([0.5, 2, 5, 8]) * dice.uniform(0.7, 1.3)
            group.append(Fault(dice.choice(kinds), victim, dice.randrange(2), seconds, dice.choice([0, 0.3, 2, 4])))
        groups.append(group)
    return groups


def inflict(shard: Shard, group: list[Fault], spared: Collection[str] = ()) -> list[str]:
    """Carries out a group and returns when all of it is over; what was done to whom.

    Nothing is done to the processes that are spared; at least one of each kind is not.
    """
    done = []
    with contextlib.ExitStack() as lasting:
        for fault in group:
            pause(fault.after_seconds)
            leader = shard.leader()
            victim = shard.names[int(fault.victim)] if fault.victim != "leader" else leader or shard.names[0]
            if victim in spared:
                victim = _chosen(shard.others(*spared), fault)
            other = _chosen(shard.others(victim, *spared), fault)
            gateway = _chosen([name for name in shard.gateways if name not in spared], fault)
            done.append(
                f"{fault.kind} {gateway if fault.kind == 'gateway killed' else victim} {other} {fault.seconds:.1f} s"
            )
            lasting.enter_context(_fault(shard, fault, victim, other, gateway))
        pause(max(fault.seconds for fault in group))
    return done


def _chosen(names: Sequence[str], fault: Fault) -> str:
    return names[fault.other % len(names)]


@contextlib.contextmanager
def _fault(shard: Shard, fault: Fault, victim: str, other: str, gateway: str) -> Iterator[None]:
    others = shard.others(victim)
    cuts = {
        "cut from replicas": shard.cut_from_others(victim),
        "cut from one replica": both(victim, other),
        "cut from coordinator": both(victim, COORDINATOR),
        "cut from gateway": both(victim, GATEWAY),
        "cut from all": shard.cut_from_others(victim) | both(victim, COORDINATOR) | both(victim, GATEWAY),
        "mute to replicas": frozenset((victim, name) for name in others),
        "deaf to replicas": frozenset((name, victim) for name in others),
        "mute to coordinator": frozenset({(victim, COORDINATOR)}),
        "deaf to coordinator": frozenset({(COORDINATOR, victim)}),
        "mute to one replica": frozenset({(victim, other)}),
        "cut from coordinator and one replica": both(victim, COORDINATOR) | both(victim, other),
    }
    with contextlib.ExitStack() as lasting:
        match fault.kind:
            case "kill":
                shard.kill(victim)
            case "service killed":
                shard.kill_part(victim, fault.other)
            case "gateway killed":
                shard.kill(gateway)
            case "stop":
                lasting.enter_context(shard.stopped(victim))
            case "follower away":
                lasting.enter_context(shard.away(other))
            case "coordinator down":
                if shard.etcd.is_running:
                    lasting.enter_context(shard.coordinator_away())
            case "hand over":
                ask_to_hand_over(shard, other)
            case kind:
                lasting.enter_context(shard.network.cut(cuts[kind]))
        yield


def ask_to_hand_over(shard: Shard, to: str) -> None:
    """As `reput lead --to`, without waiting for it; nothing happens when the coordinator is away, or `to` is no choice."""
    if not shard.etcd.is_running:
        return
    store = open_record_store(f"etcd://{shard.etcd.endpoint}/reput", BROKER_NAME)
    with contextlib.suppress(StoreError):
        stored = store.read(COORDINATOR_SECONDS_MAX)
        if stored is None:
            return
        record = ShardRecord.from_bytes(stored.data)
        if to in record.in_sync and record.leader != to:
            wish = dataclasses.replace(record, hand_over_to=to, renewal=record.renewal + 1)
            store.write(wish.to_bytes(), stored.version, COORDINATOR_SECONDS_MAX)
