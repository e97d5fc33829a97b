"""Replicas that lose power, restart and hand over at random while messages are appended: what was acknowledged stays.

After all of it: every replica has every append that was acknowledged as replicated, at its offset, and the logs are equal, byte
for byte. What a replica has shown never changes.
"""

import random
from pathlib import Path

import pytest

from store.errors import StoreError
from tests.commitlog_svc.replication.replicas import Node, Shard, open_shard, wait_equal
from tests.support.waiting import wait_until
from tests.torture.amount import amount
from tests.torture.memory_files import MemoryFileSystem
from tests.torture.seeds import pick_seed

NAMES = ("r1", "r2", "r3")


class Run:
    """A shard in memory, and what its clients know."""

    def __init__(self, shard: Shard, dice: random.Random) -> None:
        self.shard = shard
        self.dice = dice
        self.disks = {name: MemoryFileSystem() for name in NAMES}
        self.acknowledged: dict[int, bytes] = {}
        self.shown: dict[str, tuple[int, bytes]] = {}
        self.number = 0

    def start(self, name: str) -> None:
        self.shard.start(name, self.disks[name])  # type: ignore[arg-type]  # it has all calls of the port

    def lose_power(self, name: str) -> None:
        node = self.shard.nodes[name]
        self.note_shown(node)
        self.disks[name] = self.disks[name].power_cut(self.dice.randrange(1 << 30), self.shard.root / name)
        node.stop()
        self.start(name)

    def restart(self, name: str) -> None:
        self.note_shown(self.shard.nodes[name])
        self.shard.nodes[name].stop()
        self.start(name)

    def note_shown(self, node: Node) -> None:
        """What a replica shows has to be there for ever."""
        files, end_offset = node.log._files, node.confirm_offset
        shown = b"".join(data for _, data in files.iterate(0, end_offset, 1 << 20))
        before_end, before = self.shown.get(node.name, (0, b""))
        length = min(before_end, end_offset)
        assert shown[:length] == before[:length]
        if end_offset > before_end:
            self.shown[node.name] = end_offset, shown

    def leader(self) -> Node:
        def is_there() -> bool:
            for name in NAMES:
                if self.shard.nodes[name].restart_reason:
                    self.restart(name)
            return any(node.leads for node in self.shard.nodes.values())

        wait_until(is_there, "one leads")
        return max((node for node in self.shard.nodes.values() if node.leads), key=lambda node: node.status.epoch)

    def append(self, *, replicated: bool) -> None:
        self.number += 1
        body = b"%d " % self.number * self.dice.randint(1, 300)
        try:
            (receipt,) = self.leader().append(body, replicated=replicated)
        except (StoreError, AssertionError):
            return  # nothing was promised
        if replicated:
            self.acknowledged[receipt.commit_log_offset] = body


@pytest.mark.parametrize("run_number", range(amount(sample=1, change=2, full=100)))
def test_no_replicated_append_is_lost_and_all_replicas_end_equal(tmp_path: Path, run_number: int) -> None:
    dice = random.Random(f"{pick_seed('random lives')} {run_number}")
    with open_shard(tmp_path) as shard:
        run = Run(shard, dice)
        for name in NAMES:
            run.start(name)
        for round_number in range(amount(sample=8, change=8, full=40)):
            if round_number % 2 == 0:  # else all may come before a replica is there, and nothing is promised
                wait_until(lambda: len(run.leader().status.in_sync) > 1, "a replica is in sync")
            for _ in range(dice.randint(1, 15)):
                run.append(replicated=dice.random() < 0.7)
            match dice.choice(("power", "power", "restart", "all")):
                case "power":
                    run.lose_power(dice.choice(NAMES))
                case "restart":
                    run.restart(dice.choice(NAMES))
                case "all":
                    for name in NAMES:
                        run.lose_power(name)
        leader = run.leader()
        wait_until(lambda: len(run.leader().status.in_sync) == len(NAMES), "all are in sync")
        leader = run.leader()
        leader.append(b"the last one")
        wait_equal(leader, *shard.nodes.values())
        assert len({node.records() for node in shard.nodes.values()}) == 1
        for node in shard.nodes.values():
            run.note_shown(node)
            for offset, body in run.acknowledged.items():
                assert node.log.opened.reads.get(offset).body == body
        assert len(run.acknowledged) > 5
