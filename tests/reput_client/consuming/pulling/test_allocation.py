"""Shares of queues against RocketMQ's own classes: AllocationTable.java printed allocation.jsonl on RocketMQ 5.3.3."""

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput_client.consuming.pulling.allocation import MessageQueue, share_of, strategy_of

TABLE = [
    json.loads(line) for line in (pathlib.Path(__file__).parent / "allocation.jsonl").read_text().splitlines() if line
]
NAMES = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM"]


def test_shares_are_those_of_rocketmq() -> None:
    assert {row["strategy"] for row in TABLE} == set(NAMES)
    for row in TABLE:
        queues = sorted(MessageQueue("Orders", name, i) for name in row["brokers"] for i in range(row["queue_count"]))
        strategy = strategy_of(row["strategy"], ("r1", "r2"))
        shares: list[Any] = []
        for member in row["members"]:
            shares.append([queues.index(queue) for queue in share_of(strategy, member, row["members"], queues)])
        assert shares == row["shares"], row


@pytest.mark.parametrize("name", NAMES)
@given(
    queue_count=st.integers(0, 40),
    members=st.sets(st.text("abc123@", min_size=1, max_size=4), min_size=1, max_size=9),
)
def test_each_queue_has_exactly_one_reader(name: str, queue_count: int, members: set[str]) -> None:
    queues = [MessageQueue("T", "r@broker", i) for i in range(queue_count)]
    strategy = strategy_of(name, ("r",))
    shares = [share_of(strategy, member, members, queues) for member in members]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)


def test_a_member_that_the_group_does_not_know_reads_nothing() -> None:
    assert share_of(strategy_of("AVG"), "new", ["old"], [MessageQueue("T", "b", 0)]) == ()


@pytest.mark.parametrize(("name", "rooms"), [("NEARBY", ()), ("MACHINE_ROOM", ())])
def test_a_strategy_that_cannot_be_had_is_named(name: str, rooms: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"MACHINE_ROOM"):
        strategy_of(name, rooms)
