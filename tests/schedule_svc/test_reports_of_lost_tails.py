"""Retention is told only of what the log cannot lose: the record of a message whose delivery is lost is still there."""

from collections.abc import Callable

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from tests.schedule_svc.memory_life import DELAYS_MILLIS, MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import START_MILLIS, ManualClock
from tests.support.waiting import WAIT_SECONDS_MAX


@pytest.mark.parametrize("message", [delayed("a", 2), timed("a", START_MILLIS + 5_000)], ids=["level", "timer"])
def test_retention_waits_for_a_message_whose_delivery_may_still_be_lost(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, message: InternalRecord
) -> None:
    life = begin()
    log.write([message])
    life.work()
    shown_end = log.end
    clock.now += DELAYS_MILLIS[1] + 1_000
    assert life.writer is not None
    for kind in life.kinds.all:
        kind.work()
    life.writer.newest().result(WAIT_SECONDS_MAX)
    assert len(list(log.delivered())) == 1
    for _ in range(3):
        life.follower.apply(None, shown_end, 0, shown_end)  # Reput has not shown the delivery
    log.remove_before(life.reported[-1])
    log.cut(shown_end)
    life = begin()
    life.work()
    assert [one.body for one in log.delivered()] == [b"a"]


def test_retention_hears_of_a_delivery_when_reput_has_shown_it(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    log.write([timed("a", START_MILLIS + 5_000)])
    life.work()
    assert life.reported[-1] == 0
    clock.now += 6_000
    life.work()
    life.follow()
    assert life.reported[-1] > 0
