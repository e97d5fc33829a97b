"""BrokerGroups: the state of the groups follows the files of a broker that runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from consumer_svc.handover.courtesy_files import GROUPS, OFFSETS, BrokerGroups
from consumer_svc.state.queue_state import QueueRef
from store.errors import StoreCorruptedError
from tests.consumer_svc.memory_log import START_MILLIS, LogLife, MemoryLog


@pytest.fixture
def broker(log: MemoryLog) -> BrokerGroups:
    """The files in memory."""
    client: Any = log
    return BrokerGroups(client)


def put_positions(log: MemoryLog, **groups: int) -> None:
    """The position of each group in queue 0 of a topic, as a broker writes it."""
    table = {f"orders@{group}": {"0": position} for group, position in groups.items()}
    log.config[OFFSETS] = json.dumps({"offsetTable": table}).encode()


def positions(life: LogLife) -> dict[str, int]:
    """The position of each group in queue 0 of the topic."""
    found = {}
    for name in life.states.groups:
        state = life.states.find(QueueRef(name, "orders", 0))
        found[name] = -1 if state is None else state.next_offset
    return found


def test_positions_groups_and_their_ends_follow_the_files(log: MemoryLog, life: LogLife, broker: BrokerGroups) -> None:
    put_positions(log, a=3, b=5)
    log.config[GROUPS] = b'{"subscriptionGroupTable":{"c":{"groupName":"c","retryMaxTimes":2}}}'
    broker.read(life.life, START_MILLIS)
    assert positions(life) == {"a": 3, "b": 5, "c": -1}
    assert life.states.groups["c"].settings.delivery_attempts_max == 3
    put_positions(log, a=9, b=1)
    log.config[GROUPS] = b'{"subscriptionGroupTable":{}}'
    broker.read_again(life.life, 0)
    assert positions(life) == {"a": 9, "b": 1}, "b was reset, c was deleted"
    put_positions(log, b=1)
    broker.read_again(life.life, 0)
    assert positions(life) == {"b": 1}


def test_a_file_that_is_half_written_changes_nothing(log: MemoryLog, life: LogLife, broker: BrokerGroups) -> None:
    put_positions(log, a=3)
    broker.read(life.life, START_MILLIS)
    whole = log.config[OFFSETS].replace(b"3", b"4")
    log.config[OFFSETS] = whole[:-3]
    broker.read_again(life.life, 0)
    assert positions(life) == {"a": 3}
    with pytest.raises(StoreCorruptedError):
        broker.read(life.life, 0)
    log.config[OFFSETS] = whole
    broker.read_again(life.life, 0)
    assert positions(life) == {"a": 4}


def test_the_files_of_the_real_broker_are_read(
    log: MemoryLog, life: LogLife, broker: BrokerGroups, broker_store: Path
) -> None:
    for name in (OFFSETS, GROUPS):
        log.config[name] = (broker_store / "config" / name).read_bytes()
    broker.read(life.life, START_MILLIS)
    assert life.pulls.offsets("b_cg", "b_log") == [
        (QueueRef("b_cg", "b_log", queue_id), at) for queue_id, at in enumerate((230, 230, 240, 241))
    ]
