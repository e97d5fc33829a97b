"""What a broker had in flight is read from its revive and timer topics."""

import json
from typing import Any

import pytest

from consumer_svc.delivering.life import INVISIBLE_MILLIS_MAX
from consumer_svc.handover import broker_pops
from consumer_svc.handover.courtesy_files import OFFSETS, CourtesyFiles
from consumer_svc.state.queue_state import QueueRef
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED
from store.errors import StoreCorruptedError
from store.format.delivery.consumer_files import decode_offsets
from store.format.delivery.pop_records import REVIVE_GROUP, TIMER_TOPIC
from store.format.properties import REAL_TOPIC, TAGS
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import START_MILLIS, LogLife, MemoryLog

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
REF = QueueRef("g", "t", 0)


@pytest.fixture
def courtesy(log: MemoryLog, life: LogLife) -> CourtesyFiles:
    client: Any = log
    return CourtesyFiles(
        client, lambda records: log.append(log.epoch, records, FLUSH_MODE_UNSPECIFIED), "DefaultCluster", "broker-a"
    )


def put(log: MemoryLog, tag: str, body: dict[str, Any], *, timer: bool, queue_id: int = 0) -> None:
    """A record as the broker writes it: in the timer topic first, or where the timer put it."""
    properties = {TAGS: tag, REAL_TOPIC: REVIVE, "REAL_QID": str(queue_id)} if timer else {TAGS: tag}
    topic, queue = (TIMER_TOPIC, 0) if timer else (REVIVE, queue_id)
    log.write([InternalRecord(topic=topic, queue_id=queue, body=json.dumps(body).encode(), properties=properties)])


def point(start: int, count: int, popped: int = START_MILLIS, hidden: int = 60_000, **more: object) -> dict[str, Any]:
    fields = {"so": start, "n": count, "d": list(range(count)), "pt": popped, "it": hidden, "bm": 0}
    return fields | {"q": 0, "t": "t", "c": "g", "bn": "broker-a"} | more


def ack(of: dict[str, Any], offset: int) -> dict[str, Any]:
    return {name: of[name] for name in ("so", "pt", "q", "t", "c", "bn")} | {"ao": offset}


def put_offsets(log: MemoryLog, table: str) -> None:
    """A file as the broker writes it: bare queue ids."""
    log.config[OFFSETS] = b'{"offsetTable":{%s}}' % table.encode()


def test_unacknowledged_messages_of_a_broker_are_in_flight(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    for number in range(8):
        log.send("t", f"m{number}".encode())
    over, waiting = point(0, 3), point(3, 3)
    for record, tag in ((over, "ck"), (ack(over, 0), "ack"), (waiting, "ck"), (ack(waiting, 4), "ack")):
        put(log, tag, record, timer=True)
    put(log, "ck", over, timer=False)  # position 0: the revive group is done with it
    put(log, "ack", ack(over, 0), timer=False)
    put_offsets(log, f'"t@g":{{0:6}},"{REVIVE}@{REVIVE_GROUP}":{{0:0}}')
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert (state.next_offset, sorted(state.leases)) == (6, [3, 5])
    assert {lease.invisible_until_millis for lease in state.leases.values()} == {START_MILLIS + 60_000}
    assert REVIVE_GROUP not in life.states.groups
    fresh = life.pop(pop_of("g", "t"))
    assert [one.message.queue_offset for one in fresh] == [6, 7]
    life.acks.ack("g", [one.receipt_handle for one in fresh])
    log.clock.now += 60_000
    life.expirer.note_all()  # as a life does when it begins
    life.expire()
    again = life.pop(pop_of("g", "t"))
    assert sorted(one.message.body for one in again) == [b"m3", b"m5"]
    assert {one.delivery_attempt for one in again} == {2}


def test_what_a_broker_delivered_to_no_program_is_not_counted(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    """`sp` of RocketMQ 5.5."""
    for number in range(2):
        log.send("t", f"m{number}".encode())
    put(log, "ck", point(0, 1, sp=True), timer=True)
    put(log, "ck", point(1, 1), timer=True)
    put_offsets(log, '"t@g":{0:2}')
    courtesy.take_over(life.life, START_MILLIS)
    log.clock.now += 60_000
    life.expirer.note_all()
    life.expire()
    assert {one.message.body: one.delivery_attempt for one in life.pop(pop_of("g", "t"))} == {b"m0": 1, b"m1": 2}


def test_a_checkpoint_that_the_timer_delivered_counts_once_and_later_ones_are_not_over(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    for number in range(4):
        log.send("t", f"m{number}".encode())
    first, again = point(0, 1), point(0, 1, rp="1")  # the broker could not read the message, and tries it again
    put(log, "ck", first, timer=True)
    put(log, "ck", first, timer=False, queue_id=3)
    put(log, "ck", again, timer=True)
    behind = point(1, 1)
    put(log, "ck", behind, timer=False, queue_id=3)
    put_offsets(log, f'"t@g":{{0:2}},"{REVIVE}@{REVIVE_GROUP}":{{3:0}}')
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == [0, 1]


def test_what_lies_behind_the_broker_s_position_is_not_in_flight(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    """A broker that was killed wrote its positions up to 5 s before."""
    for number in range(4):
        log.send("t", f"m{number}".encode())
    put(log, "ck", point(1, 3), timer=True)
    put_offsets(log, '"t@g":{0:2}')
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert (state.next_offset, sorted(state.leases)) == (2, [1])


def test_a_damaged_checkpoint_begins_no_life(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles) -> None:
    log.send("t")
    log.write([InternalRecord(topic=REVIVE, body=b"{", properties={TAGS: "ck"})])
    put_offsets(log, '"t@g":{0:1}')
    with pytest.raises(StoreCorruptedError):
        courtesy.take_over(life.life, START_MILLIS)
    assert life.states.groups == {}


def test_a_broker_begins_with_our_newest_checkpoints(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles) -> None:
    for number in range(6):
        log.send("t", f"m{number}".encode())
    handles = [one.receipt_handle for one in life.pop(pop_of("g", "t", invisible_millis=60_000))]
    life.acks.ack("g", [handles[1], handles[4]])
    courtesy.write(life.life)
    offsets = decode_offsets(log.config[OFFSETS])
    assert offsets["g", "t"] == {0: 5}
    assert offsets.get((REVIVE_GROUP, REVIVE), {}) == {}  # from its first record on
    life.acks.ack("g", [handles[2]])
    log.clock.now += 5_000
    courtesy.write(life.life)
    bodies = [json.loads(message.body) for message in log.messages(REVIVE)]
    assert [[body["so"] + diff for diff in body["d"]] for body in bodies] == [[0, 2, 3], [0, 3]]
    assert decode_offsets(log.config[OFFSETS])[REVIVE_GROUP, REVIVE] == {0: 0}  # the broker reads from the next one on
    life.acks.ack("g", [handles[0], handles[3]])
    log.clock.now += 5_000
    courtesy.write(life.life)
    offsets = decode_offsets(log.config[OFFSETS])
    assert (offsets["g", "t"], offsets[REVIVE_GROUP, REVIVE]) == ({0: 5}, {0: 1})


def test_unchanged_checkpoints_are_not_written_again(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles) -> None:
    for number in range(3):
        log.send("t", f"m{number}".encode())
    handles = [one.receipt_handle for one in life.pop(pop_of("g", "t", invisible_millis=60_000))]
    life.acks.ack("g", handles[1:])
    courtesy.write(life.life)
    life.pulls.commit("h", [("t", 0, 1)])
    log.clock.now += 5_000
    courtesy.write(life.life)
    assert len(list(log.messages(REVIVE))) == 1
    assert decode_offsets(log.config[OFFSETS])["h", "t"] == {0: 1}


def test_retries_of_a_broker_with_retry_topic_v2_are_delivered(log: MemoryLog, life: LogLife) -> None:
    """KeyBuilder.buildPopRetryTopicV2; no client can make such a topic."""
    log.write([InternalRecord(topic="%RETRY%g+t", body=b"again", reconsume_times=1, properties={"RETRY_TOPIC": "t"})])
    (one,) = life.pop(pop_of("g", "t", invisible_millis=1_000))
    assert (one.message.body, one.delivery_attempt) == (b"again", 2)
    log.clock.now += 1_000
    life.expire()
    (again,) = life.pop(pop_of("g", "t", invisible_millis=1_000))
    assert (again.message.topic, again.delivery_attempt) == ("%RETRY%g_t", 3)


def test_many_open_messages_are_written_less_often_but_at_the_end(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    for number in range(32):
        log.send("t", f"m{number}".encode())
    handles = [one.receipt_handle for one in life.pop(pop_of("g", "t", invisible_millis=60_000))]
    life.acks.ack("g", handles[31:])
    courtesy.write(life.life)
    life.acks.ack("g", handles[:1])
    courtesy.write(life.life)
    assert len(list(log.messages(REVIVE))) == 1
    courtesy.write(life.life, is_last=True)
    assert len(list(log.messages(REVIVE))) == 2
    life.acks.ack("g", handles[1:2])
    log.clock.now += 31 * 5
    courtesy.write(life.life)
    assert len(list(log.messages(REVIVE))) == 3


def test_checkpoints_are_read_from_the_first_where_store_times_fall(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    """A position by time is a guess then, and a checkpoint before it would be forgotten: its message would be skipped."""
    for number in range(2):
        log.send("t", f"m{number}".encode())
    put(log, "ck", point(0, 1), timer=True)
    put(log, "ck", point(1, 1), timer=False)
    put_offsets(log, '"t@g":{0:2}')
    log.is_unproven = True
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == [0, 1]


def test_a_record_of_a_far_future_hides_no_checkpoint(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles) -> None:
    log.send("t")
    put(log, "ck", point(0, 1), timer=True)
    put_offsets(log, '"t@g":{0:1}')
    courtesy.take_over(life.life, START_MILLIS + 25 * 365 * 86_400_000)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == [0]


@pytest.mark.parametrize(("revived", "expected"), [(0, []), (1, [0]), (999_999, [0])])
def test_a_position_of_the_revive_group_that_no_queue_proves_ends_no_checkpoint(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, revived: int, expected: list[int]
) -> None:
    """Of another store, or from before the log was cut: what is in flight would be skipped."""
    log.send("t")
    put(log, "ck", point(0, 1), timer=True)
    put(log, "ck", point(0, 1), timer=False)
    put_offsets(log, f'"t@g":{{0:1}},"{REVIVE}@{REVIVE_GROUP}":{{0:{revived}}}')
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == expected


def test_a_checkpoint_hides_a_message_for_no_longer_than_a_pop_may(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("t")
    put(log, "ck", point(0, 1, popped=START_MILLIS + 25 * 365 * 86_400_000), timer=True)
    put_offsets(log, '"t@g":{0:1}')
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert [lease.invisible_until_millis for lease in state.leases.values()] == [START_MILLIS + INVISIBLE_MILLIS_MAX]


def test_a_checkpoint_before_the_first_position_is_of_no_message(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("t")
    put(log, "ck", point(-3, 4), timer=True)
    put_offsets(log, '"t@g":{0:1}')
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == [0]


def test_three_days_of_a_busy_broker_are_not_kept_in_memory(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old checkpoints of the timer topic are over by their own times, and what is in flight now is found."""
    monkeypatch.setattr(broker_pops, "KEPT_COUNT_MAX", 10)
    sizes: list[int] = []
    count_kept = broker_pops._Reading._count_kept

    def counted(reading: broker_pops._Reading, count: int) -> None:
        count_kept(reading, count)
        sizes.append(len(reading._over) + sum(map(len, reading._acked.values())))

    monkeypatch.setattr(broker_pops._Reading, "_count_kept", counted)
    for number in range(43):
        log.send("t", f"m{number}".encode())
    old = START_MILLIS - 3 * 86_400_000
    points = [point(number, 1, popped=old + number) for number in range(40)]
    points += [point(40, 1), point(41, 1), point(42, 1)]
    for one in points:
        put(log, "ck", one, timer=True)
    for one in points[:41]:
        put(log, "ck", one, timer=False)
        if one["so"] != 39:
            put(log, "ack", ack(one, one["so"]), timer=False)
    put(log, "ck", point(39, 1, popped=old + 39, rp="1"), timer=False)  # not dealt with, however old
    put_offsets(log, f'"t@g":{{0:43}},"{REVIVE}@{REVIVE_GROUP}":{{0:80}}')
    log.is_unproven = True
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == [39, 41, 42]
    assert max(sizes) <= 11


@pytest.mark.parametrize("revived", [None, 999_999])
def test_old_acknowledged_messages_do_not_come_again_where_the_revive_position_proves_nothing(
    log: MemoryLog,
    life: LogLife,
    courtesy: CourtesyFiles,
    monkeypatch: pytest.MonkeyPatch,
    revived: int | None,
) -> None:
    """Every checkpoint of the revive topic waits then, and what it waits for must not be forgotten."""
    monkeypatch.setattr(broker_pops, "KEPT_COUNT_MAX", 10)
    sizes: list[int] = []
    take = broker_pops._Reading._take

    def measured(reading: broker_pops._Reading, message: Any) -> Any:
        sizes.append(len(reading._waiting) + len(reading._over) + sum(map(len, reading._acked.values())))
        return take(reading, message)

    monkeypatch.setattr(broker_pops._Reading, "_take", measured)
    for number in range(43):
        log.send("t", f"m{number}".encode())
    old = START_MILLIS - 3 * 86_400_000
    points = [point(number, 1, popped=old + number) for number in range(38)]
    points += [point(38, 2, popped=old + 38), point(40, 1), point(41, 1), point(42, 1)]
    for one in points:
        put(log, "ck", one, timer=True)
    for one in points[:-1]:  # the newest one still waits for its time
        put(log, "ck", one, timer=False)
        if one["so"] != 41:
            put(log, "ack", ack(one, one["so"]), timer=False)
    table = '"t@g":{0:43}' + ("" if revived is None else f',"{REVIVE}@{REVIVE_GROUP}":{{0:{revived}}}')
    put_offsets(log, table)
    log.is_unproven = True
    courtesy.take_over(life.life, START_MILLIS)
    state = life.states.find(REF)
    assert state is not None
    assert sorted(state.leases) == [39, 41, 42], "39 was not acknowledged, however old it is"
    assert max(sizes) <= 12
