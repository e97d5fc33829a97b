"""What becomes of a message that waits, over records in memory as the services and RocketMQ write them."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.groups.copies import find_original
from gateway.groups.tracked import timer_millis_of
from gateway.groups.waits import due_millis, settled
from gateway.ports.chain import MethodTable
from gateway.ports.shard import store_millis
from gateway.ports.shards import Shards
from gateway.ports.waiting import DELAY_LEVELS
from gateway.shards.remote import LEVELS_SECONDS, serve_schedule
from reput.gateway.v1.gateway_service_pb2 import (
    MESSAGE_STATE_GIVEN_UP,
    MESSAGE_STATE_PENDING_TRANSACTION,
    MESSAGE_STATE_RECALLED,
    MESSAGE_STATE_ROLLED_BACK,
    MESSAGE_STATE_SCHEDULED,
    MESSAGE_STATE_STORED,
)
from reput.schedule.v1.schedule_service_pb2 import GetStatusRequest, GetStatusResponse
from tests.gateway.groups import test_tracks
from tests.gateway.groups.memory_groups import MemoryGroups
from tests.gateway.groups.test_tracks import KEY
from tests.gateway.memory_shard import MemoryShard, shown
from tests.gateway.waiting.memory_waiting import MemoryScheduling, half
from tests.support.calls import Answers

TIMER, HALF, GIVEN_UP = "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
make = test_tracks.make
KNOWN = {"T": 1, "U": 1, TIMER: 1, HALF: 1, GIVEN_UP: 1}


@pytest.fixture
def state_of(make, fan_out, deadline):
    """How the message with the key stands, given what the schedule service lists and how far it knows the log."""

    def state(*listed: str, known_offset: int = 1 << 40, has_service: bool = True):
        waiting = MemoryScheduling("broker-a", [half(key, "T") for key in listed])
        waiting.known = known_offset
        shard = MemoryGroups(MemoryShard(make.made, KNOWN)).shard("broker-a")
        shards = Shards([waiting.in_shard(shard) if has_service else shard], fan_out)
        which = {"offset_msg_id": "", "topic": "T", "unique_key": KEY}
        original, _, _ = find_original(shards, **which, deadline=deadline)
        assert original is not None
        found, how = settled(shards, original, deadline)
        return found.record.topic, how

    return state


def test_a_timer_message_is_scheduled_until_its_record_lies_in_its_topic(make, state_of) -> None:
    make(TIMER, REAL_TOPIC="T", TIMER_OUT_MS="5000")
    assert state_of() == (TIMER, MESSAGE_STATE_SCHEDULED)
    make("T", __REPUT_MOVED_FROM__=f"0 0 {TIMER}")
    assert state_of() == ("T", MESSAGE_STATE_STORED)


def test_the_time_of_a_timer_message_is_that_of_its_producer_to_the_millisecond(make) -> None:
    """It was that of TIMER_OUT_MS, up to a second before the message comes."""
    record = make(TIMER, REAL_TOPIC="T", TIMER_OUT_MS="5000", TIMER_DELIVER_MS="5996")
    assert timer_millis_of(shown(record)) == 5_996


def test_a_later_record_that_recalls_it_makes_it_recalled_and_is_no_message_itself(make, state_of) -> None:
    make(TIMER, REAL_TOPIC="T", TIMER_OUT_MS="5000")
    make(TIMER, REAL_TOPIC="T", TIMER_OUT_MS="5000", TIMER_DEL_UNIQKEY=f"T_{KEY}")
    assert state_of() == (TIMER, MESSAGE_STATE_RECALLED)


def test_a_half_message_is_pending_while_the_service_lists_it(make, state_of) -> None:
    make(HALF, REAL_TOPIC="T", TRAN_MSG="true")
    assert state_of(KEY) == (HALF, MESSAGE_STATE_PENDING_TRANSACTION)


def test_a_half_message_that_is_not_listed_was_rolled_back_only_if_the_service_knows_the_log_behind_it(
    make, state_of
) -> None:
    first = make(HALF, REAL_TOPIC="T", TRAN_MSG="true")
    assert state_of(known_offset=first.commit_log_offset) == (HALF, MESSAGE_STATE_PENDING_TRANSACTION)
    assert state_of(known_offset=first.commit_log_offset + 1) == (HALF, MESSAGE_STATE_ROLLED_BACK)
    again = make(HALF, REAL_TOPIC="T", TRAN_MSG="true", TRANSACTION_CHECK_TIMES="1")
    assert state_of(known_offset=again.commit_log_offset) == (HALF, MESSAGE_STATE_PENDING_TRANSACTION)
    assert state_of(known_offset=again.commit_log_offset + 1) == (HALF, MESSAGE_STATE_ROLLED_BACK)


def test_a_half_message_without_a_verdict_in_all_checks_is_given_up(make, state_of) -> None:
    make(HALF, REAL_TOPIC="T", TRAN_MSG="true")
    make(GIVEN_UP, REAL_TOPIC="T", TRAN_MSG="true")
    assert state_of() == (HALF, MESSAGE_STATE_GIVEN_UP)


def test_a_committed_half_message_is_its_record_in_the_topic_also_one_of_a_real_broker(make, state_of) -> None:
    make(HALF, REAL_TOPIC="T", TRAN_MSG="true")
    make("T", TRAN_MSG="true", __transactionId__=KEY)
    assert state_of() == ("T", MESSAGE_STATE_STORED)


def test_without_a_schedule_service_a_half_message_is_taken_for_pending(make, state_of) -> None:
    make(HALF, REAL_TOPIC="T", TRAN_MSG="true")
    assert state_of(has_service=False) == (HALF, MESSAGE_STATE_PENDING_TRANSACTION)


@pytest.mark.parametrize(("queue_id", "delay_millis"), [(0, 2_000), (1, 3_600_000), (9, 3_600_000)])
def test_a_delayed_message_is_due_by_the_list_of_its_shard(make, fan_out, deadline, queue_id, delay_millis) -> None:
    make("SCHEDULE_TOPIC_XXXX", queue_id=str(queue_id), REAL_TOPIC="T", REAL_QID="0")
    waiting = MemoryScheduling("broker-a")
    memory = MemoryShard(make.made, {**KNOWN, "SCHEDULE_TOPIC_XXXX": 18})
    shard = waiting.in_shard(MemoryGroups(memory).shard("broker-a"))
    original, _, _ = find_original(
        Shards([shard], fan_out), offset_msg_id="", topic="T", unique_key=KEY, deadline=deadline
    )
    assert due_millis(shard, original.record, deadline) == store_millis(original.record) + delay_millis
    waiting.is_down = True
    assert due_millis(shard, original.record, deadline) is None


def test_the_list_of_a_shard_is_asked_for_once_a_minute(deadline) -> None:
    class Service(Answers):
        levels: tuple[int, ...] = ()

        def GetStatus(self, _request: object) -> GetStatusResponse:
            return GetStatusResponse(delay_levels_millis=self.levels)

    service, seconds = Service(), [100.0]
    client: Any = service
    table = MethodTable()
    serve_schedule(table, client, lambda: seconds[0])

    def levels() -> Sequence[int]:
        return table(DELAY_LEVELS, GetStatusRequest(), deadline)

    assert levels()[:2] == (1_000, 5_000)  # RocketMQ's, until it tells
    service.levels = (7_000,)
    assert levels() == (7_000,)
    service.levels = (9_000,)
    seconds[0] += LEVELS_SECONDS - 1
    assert levels() == (7_000,)
    seconds[0] += 1
    assert levels() == (9_000,)
