"""Nothing of one kind or one record stops the messages that wait: each test is named after what did."""

from typing import Any

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import GetStatusResponse, InternalRecord
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from schedule_svc.batches import BatchReader
from schedule_svc.due_record import level_due
from schedule_svc.follower import TOPIC
from schedule_svc.state.codec import level_change
from services.following.moved_record import PROPERTIES_BYTES_MAX
from services.following.state_topic.state_log import StateLog
from services.following.state_topic.state_writer import REQUEST_BYTES_MAX, StateWriter
from store.errors import DeadlineExceededError, ServiceUnavailableError
from store.format.properties import DELAY, KEYS, REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY, encode_properties
from store.format.topic import SCHEDULE_TOPIC
from tests.schedule_svc.memory_life import TARGET, MemoryLife, MemoryLog, delayed
from tests.support.calls import Answers
from tests.support.memory_log import ManualClock
from tests.support.waiting import WAIT_SECONDS_MAX


def test_a_verdict_without_an_answer_of_the_log_begins_a_new_life(life: MemoryLife) -> None:
    life.follow()
    life.life.fail(DeadlineExceededError("the append was not answered"))
    with pytest.raises(DeadlineExceededError):  # so the follower's process opens the next life
        life.follow()


def test_a_level_that_cannot_be_read_does_not_stop_the_levels_behind_it(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    first, _ = log.write([delayed("a", 1), delayed("b", 2)])
    life.follow()
    log.unreadable.add(first.commit_log_offset)
    clock.now += 10_000
    with pytest.raises(ServiceUnavailableError):
        life.kinds.levels.work()
    assert life.writer is not None
    life.writer.newest().result(WAIT_SECONDS_MAX)
    assert [message.body for message in log.delivered()] == [b"b"]
    log.unreadable.clear()
    life.work()
    assert [message.body for message in log.delivered()] == [b"b", b"a"]


def test_a_record_of_a_broker_that_was_made_before_1970_is_delivered_as_one_that_the_log_takes() -> None:
    message = StoredMessage(topic=SCHEDULE_TOPIC, body=b"x", properties={REAL_TOPIC: TARGET, REAL_QUEUE_ID: "0"})
    message.born_time.seconds = -1
    record = level_due(message)
    assert record is not None
    assert record.born_time.seconds == 0


def test_a_record_of_a_broker_without_room_for_more_properties_is_delivered_without_its_longest() -> None:
    properties = {REAL_TOPIC: "t", REAL_QUEUE_ID: "0", DELAY: "1", UNIQ_KEY: "u", KEYS: "k" * 32_710}
    record = level_due(StoredMessage(topic=SCHEDULE_TOPIC, body=b"x", properties=properties))
    assert record is not None
    assert len(encode_properties(dict(record.properties))) <= PROPERTIES_BYTES_MAX
    assert record.properties[UNIQ_KEY] == "u"


@pytest.mark.parametrize(
    ("file_size_bytes", "wanted"), [(0, REQUEST_BYTES_MAX), (1 << 30, REQUEST_BYTES_MAX), (999, 333)]
)
def test_a_request_is_a_part_of_a_log_file(file_size_bytes: int, wanted: int) -> None:
    class Log(Answers):
        def GetStatus(self, _request: object) -> GetStatusResponse:
            return GetStatusResponse(file_size_bytes=file_size_bytes)

    commitlog: Any = Log()
    assert StateLog(TOPIC, commitlog, commitlog).request_bytes_max() == wanted


def test_a_crowd_that_is_due_is_appended_in_requests_that_fit_into_small_log_files() -> None:
    nothing: Any = None
    batches = BatchReader(nothing, nothing, 1_000)
    assert batches.fitting_count([400, 400, 400]) == 2
    assert batches.fitting_count([4_000, 400]) == 1


def test_submissions_are_joined_only_to_requests_that_fit_into_small_log_files() -> None:
    sizes: list[int] = []

    def append(records: list[InternalRecord], _flush: int) -> list[AppendResult]:
        sizes.append(sum(record.topic == TARGET for record in records))
        return [AppendResult() for _ in records]

    hold: Any = append
    writer = StateWriter(TOPIC, hold, 1, request_bytes_max=1_000)
    records = [InternalRecord(topic=TARGET, body=b"x" * 600)]
    with writer._changed:  # all are there before the first is taken
        done = [writer.submit([level_change(1, number)], records) for number in range(3)]
    for each in done:
        each.result(WAIT_SECONDS_MAX)
    writer.close()
    assert sizes == [1, 1, 1]
