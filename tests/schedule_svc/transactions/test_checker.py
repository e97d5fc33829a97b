"""Producers are asked for verdicts, as often as RocketMQ asks them and not more often."""

import threading
from collections.abc import Callable

import pytest

from schedule_svc.transactions.checker import PENDING_MILLIS_MAX, RENEW_MILLIS, CheckGateways
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.kind import LOOK_MILLIS
from schedule_svc.transactions.transactions import is_gone
from store.errors import (
    OffsetOutOfRangeError,
    RecordNotFoundError,
    ServiceUnavailableError,
    TransactionNotFoundError,
)
from store.format.delivery.waiting_handles import TRANSACTION, WaitingHandle, encode_handle
from store.format.properties import REAL_TOPIC, TRANSACTION_CHECK_TIMES
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.schedule_svc.transactions.lives import (
    MAX_CHECKS,
    TOPIC_NAME,
    LogLife,
    MemoryLog,
    Producers,
    committed_bodies,
    error_of,
)
from tests.support.waiting import WAIT_SECONDS_MAX

Begin = Callable[..., LogLife]


def test_a_producer_is_asked_after_the_immunity_time_and_then_each_interval(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    began = log.manual.now
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    times: list[int] = []
    while len(times) < 4:
        log.manual.now += 500
        life.work()
        times += [log.manual.now - began for _ in producers.asked()]
    assert [round(time / 1_000) for time in times] == [6, 36, 66, 96]


def test_a_check_renews_the_half_message_and_ends_the_old_one_in_one_request(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 7_000
    life.work()
    half, op = log.requests[-1]
    assert (half.topic, half.properties[TRANSACTION_CHECK_TIMES]) == (HALF_TOPIC, "1")
    assert (op.topic, op.body) == (OP_HALF_TOPIC, b"0,")
    (check,) = producers.asked()
    assert (check.message.topic, check.message.queue_id, check.message.body) == (TOPIC_NAME, 3, b"a")
    assert REAL_TOPIC not in check.message.properties
    life.end_by_id(check.transaction_id, from_check=True)
    assert committed_bodies(log) == ["a"]
    assert log.waiting() == {}


def test_the_answer_to_a_check_may_come_before_the_renewed_record_is_known(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    recent, log.recent = log.recent, None
    log.manual.now += 7_000
    life.work()
    (check,) = producers.asked()
    life.end_by_id(check.transaction_id, from_check=True)
    log.recent = recent
    assert recent is not None
    recent.set_ends((topic, queue_id, queue.end) for (topic, queue_id), queue in log.queues.items())
    life.work()
    assert committed_bodies(log) == ["a"]
    assert life.pending() == []
    assert log.waiting() == {}


def test_after_fifteen_checks_the_message_is_given_up(log: MemoryLog, begin: Begin) -> None:
    half = log.send_half("a")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    for _ in range(2 * MAX_CHECKS):
        log.manual.now += 30_001
        life.work()
    assert len(producers.asked()) == MAX_CHECKS
    (message,) = log.messages(CHECK_MAX_TIME_TOPIC)
    assert (message.body, message.properties[TRANSACTION_CHECK_TIMES]) == (b"a", "15")
    assert log.waiting() == {}
    assert life.counts.given_up == 1
    error = error_of(lambda: life.end(half))
    assert isinstance(error, TransactionNotFoundError)
    assert error.metadata["outcome"] == "GIVEN_UP"
    assert committed_bodies(log) == []


def test_checks_survive_restarts(log: MemoryLog, begin: Begin) -> None:
    """Each life asks once, and they ask fifteen times together."""
    log.send_half("a")
    asked = 0
    for _ in range(2 * MAX_CHECKS):
        life = begin()
        producers = Producers(life.gateways, TOPIC_NAME)
        log.manual.now += 30_001
        life.work()
        asked += len(producers.asked())
        life.close()
    assert asked == MAX_CHECKS
    assert len(list(log.messages(CHECK_MAX_TIME_TOPIC))) == 1


def test_without_a_producer_nothing_is_counted(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    Producers(life.gateways, "Other")
    for _ in range(50):
        log.manual.now += 60_000
        life.work()
    (row,) = life.pending()
    assert (row.check_count, row.HasField("next_check_time")) == (0, False)
    producers = Producers(life.gateways, TOPIC_NAME, gateway_id="g2")
    log.manual.now += 1_000
    life.work()
    assert len(producers.asked()) == 1
    (row,) = life.pending()
    assert row.check_count == 1
    assert row.next_check_time.ToMilliseconds() > log.manual.now


def test_an_old_record_is_renewed_without_being_counted(log: MemoryLog, begin: Begin) -> None:
    """So a start never has to read far back."""
    log.send_half("a")
    for number in range(200):
        log.send_half(f"m{number}")
    life = begin()
    for half in list(log.waiting().values())[1:]:
        life.end(half)
    assert log.waiting().keys() == {0}
    log.manual.now += RENEW_MILLIS + 1_000
    life.work()
    (renewed,) = log.waiting().values()
    assert renewed.queue_offset == 201
    assert TRANSACTION_CHECK_TIMES not in renewed.properties
    life.write_full()
    state = log.state().states.transactions
    assert state.half_offset == 201
    assert state.op_offset == 200


def test_a_half_message_without_producer_is_given_up_after_three_days(log: MemoryLog, begin: Begin) -> None:
    """`needSkip`: RocketMQ's fileReservedTime."""
    log.send_half("a")
    life = begin()
    while log.manual.now < 1_700_000_000_000 + PENDING_MILLIS_MAX:
        life.work()
        assert len(log.waiting()) == 1
        log.manual.now += RENEW_MILLIS // 2
    for _ in range(3):
        log.manual.now += RENEW_MILLIS // 2
        life.work()
    assert [message.body for message in log.messages(CHECK_MAX_TIME_TOPIC)] == [b"a"]
    assert log.waiting() == {}


def test_any_gateway_with_a_producer_is_asked(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    first = Producers(life.gateways, TOPIC_NAME, gateway_id="g1")
    log.manual.now += 7_000
    life.work()
    assert len(first.asked()) == 1
    life.gateways.forget(first.stream)  # it died with the check
    second = Producers(life.gateways, TOPIC_NAME, gateway_id="g2")
    log.manual.now += 30_001
    life.work()
    assert len(second.asked()) == 1


def unheard_for(log: MemoryLog, life: LogLife, rounds: int, round_millis: int = RENEW_MILLIS // 2) -> int:
    """So many rounds of a gateway that can ask no producer; how many checks it took."""
    producers = Producers(life.gateways, TOPIC_NAME)
    taken = 0
    for _ in range(rounds):
        log.manual.now += round_millis
        life.gateways.keep("g1", [TOPIC_NAME])
        life.work()
        checks = producers.asked()
        taken += len(checks)
        life.gateways.put_back([check.transaction_id for check in checks])
        log.manual.now += LOOK_MILLIS
        life.work()
    life.gateways.forget(producers.stream)
    return taken


def test_a_half_message_was_given_up_after_checks_that_no_producer_got(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    assert unheard_for(log, life, 4 * MAX_CHECKS) > MAX_CHECKS
    (half,) = log.waiting().values()
    assert TRANSACTION_CHECK_TIMES not in half.properties
    assert not list(log.messages(CHECK_MAX_TIME_TOPIC))
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += RENEW_MILLIS
    life.work()
    (check,) = producers.asked()
    life.end_by_id(check.transaction_id, from_check=True)
    assert committed_bodies(log) == ["a"]
    assert log.waiting() == {}


def test_a_half_message_was_written_every_15_seconds_for_three_days_when_no_producer_got_its_checks(
    log: MemoryLog, begin: Begin
) -> None:
    """Whoever named the producer group of others filled the log: 17,280 copies of each half message."""
    log.send_half("a")
    life = begin()
    minutes = PENDING_MILLIS_MAX // 60_000
    checks = unheard_for(log, life, minutes, 60_000 - LOOK_MILLIS)
    assert 72 < checks < 85  # 30 s, 1, 2, 4, 8, 16, 32 min, and then each hour
    assert len(list(log.messages(HALF_TOPIC))) <= 1 + 2 * checks
    assert unheard_for(log, life, 2 * MAX_CHECKS, 60_000 - LOOK_MILLIS) == MAX_CHECKS
    assert log.waiting() == {}


def test_a_producer_that_is_there_again_gets_all_checks_at_their_interval(log: MemoryLog, begin: Begin) -> None:
    """Only a check that no producer got has the next one wait longer."""
    log.send_half("a")
    life = begin()
    unheard_for(log, life, 4)
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += RENEW_MILLIS
    life.work()
    life.gateways.keep("g1", [TOPIC_NAME])
    for _ in range(3):
        log.manual.now += 30_001
        life.work()
    assert len(producers.asked()) == 1 + 3


def test_checks_that_no_producer_got_count_for_no_later_life(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    asked = 0
    for _ in range(2 * MAX_CHECKS):
        life = begin()
        unheard_for(log, life, 2, 60_001)
        producers = Producers(life.gateways, TOPIC_NAME)
        log.manual.now += 60_001
        life.work()
        asked += len(producers.asked())
        life.close()
    assert asked == MAX_CHECKS
    assert len(list(log.messages(CHECK_MAX_TIME_TOPIC))) == 1


def test_checks_that_a_stream_had_at_its_end_do_not_count(log: MemoryLog, begin: Begin) -> None:
    for body in ("a", "b"):
        log.send_half(body)
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 7_000
    life.work()
    life.gateways.forget(producers.stream)
    log.manual.now += LOOK_MILLIS
    life.work()
    assert [row.check_count for row in life.pending()] == [0, 0]
    assert not any(TRANSACTION_CHECK_TIMES in half.properties for half in log.waiting().values())


def test_a_check_that_comes_when_its_stream_has_ended_does_not_count(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    stream = Producers(life.gateways, TOPIC_NAME).stream
    log.manual.now += 7_000
    stream.end()  # between the look at its producers and the offer
    life.work()
    log.manual.now += LOOK_MILLIS
    life.work()
    (row,) = life.pending()
    assert row.check_count == 0


def test_what_is_told_of_a_check_twice_or_wrongly_changes_nothing(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    for _ in range(2):
        log.manual.now += 30_001
        life.work()
    first, second = producers.asked()
    other = encode_handle(TRANSACTION, WaitingHandle(TOPIC_NAME, "broker-z", second.message.commit_log_offset, "k"))
    told = [first.transaction_id, second.transaction_id, second.transaction_id, other, "no handle"]
    for _ in range(2):
        life.gateways.put_back(told)
        log.manual.now += LOOK_MILLIS
        life.work()
    assert [half.properties[TRANSACTION_CHECK_TIMES] for half in log.waiting().values()] == ["1"]


def test_a_half_message_of_three_days_ends_although_no_producer_gets_its_checks(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin()
    unheard_for(log, life, 2)
    log.manual.now += PENDING_MILLIS_MAX
    unheard_for(log, life, MAX_CHECKS + 1)
    assert log.waiting() == {}
    assert len(list(log.messages(CHECK_MAX_TIME_TOPIC))) == 1


def test_a_gateway_without_room_gets_no_checks_and_nothing_is_counted(log: MemoryLog, begin: Begin) -> None:
    count = 1_500
    for number in range(count):
        log.send_half(f"m{number}")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 7_000
    life.work()
    waiting = list(log.waiting().values())
    counted = sum(TRANSACTION_CHECK_TIMES in half.properties for half in waiting)
    assert len(waiting) == count
    assert counted <= 1_024
    assert len(producers.asked()) == counted
    log.manual.now += 1_000
    life.work()
    assert len(producers.asked()) == count - counted


def test_a_half_message_without_a_topic_is_given_up(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a", topic="")
    life = begin()
    for _ in range(3):
        log.manual.now += 31_000
        life.work()
    assert [message.body for message in log.messages(CHECK_MAX_TIME_TOPIC)] == [b"a"]


def test_a_record_that_cannot_be_read_does_not_stop_the_others(log: MemoryLog, begin: Begin) -> None:
    bad = log.send_half("bad")
    log.send_half("good")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 2_000
    life.work()  # what they say is known
    log.unreadable.add(bad.commit_log_offset)
    log.manual.now += 7_000
    assert error_of(life.work).reason() == "SERVICE_UNAVAILABLE"
    log.unreadable.clear()
    assert [check.message.body for check in producers.asked()] == [b"good"]
    log.manual.now += 30_001
    life.work()
    assert sorted(check.message.body for check in producers.asked()) == [b"bad", b"good"]


def test_rules_of_the_settings_count(log: MemoryLog, begin: Begin) -> None:
    log.send_half("a")
    life = begin(rules=CheckRules(timeout_millis=100, interval_millis=200, count_max=2))
    producers = Producers(life.gateways, TOPIC_NAME)
    for _ in range(10):
        log.manual.now += 250
        life.work()
    assert len(producers.asked()) == 2
    assert len(list(log.messages(CHECK_MAX_TIME_TOPIC))) == 1


def test_checks_of_a_group_were_used_up_by_producers_of_another(log: MemoryLog, begin: Callable[..., LogLife]) -> None:
    """Both send to one topic. Nobody of the first was asked, and its half message was given up after all its checks."""
    log.send_half("a", group="first")
    log.send_half("b", group="second")
    log.send_half("c")
    life = begin(rules=CheckRules(timeout_millis=100, interval_millis=200, count_max=2))
    second = Producers(life.gateways, groups=["second"])
    for _ in range(6):
        log.manual.now += 250
        life.work()
    assert {check.message.body for check in second.asked()} == {b"b"}
    assert [each.body for each in log.messages(CHECK_MAX_TIME_TOPIC)] == [b"b"]
    first = Producers(life.gateways, groups=["first"], gateway_id="g2")
    third = Producers(life.gateways, TOPIC_NAME, gateway_id="g3")
    log.manual.now += 250
    life.work()
    assert [check.message.body for check in first.asked()] == [b"a"]
    assert [check.message.body for check in third.asked()] == [b"c"]


@pytest.mark.parametrize(("topic", "group"), [("Orders", "Orders"), ("shop%Orders", "Orders")])
def test_a_half_message_of_a_group_named_like_its_topic_was_never_checked(
    log: MemoryLog, begin: Begin, topic: str, group: str
) -> None:
    """RocketMQ's proxy writes the topic as the group, so only producers of the topic were asked, none over remoting."""
    log.send_half("a", topic=topic, group=group)
    log.send_half("b", topic="Bills", group=group)
    log.send_half("c", topic="Other")
    life = begin()
    of_other = Producers(life.gateways, "Other%Orders", gateway_id="g2", groups=["other", "Bills"])
    of_group = Producers(life.gateways, groups=[group])
    log.manual.now += 7_000
    life.work()
    assert [check.message.body for check in of_group.asked()] == [b"a", b"b"]
    life.gateways.forget(of_group.stream)
    of_topic = Producers(life.gateways, topic, gateway_id="g3")
    log.manual.now += 30_001
    life.work()
    assert [check.message.body for check in of_topic.asked()] == [b"a"]
    assert of_other.asked() == []
    assert {row.unique_key: row.check_count for row in life.pending()} == {"key of a": 2, "key of b": 1, "key of c": 0}


def test_a_gateway_that_is_silent_for_a_minute_is_forgotten() -> None:
    now = [0.0]
    gateways = CheckGateways(lambda: now[0])
    Producers(gateways, "T")
    now[0] = 59.9
    assert gateways.asked() == {"T"}
    now[0] = 60.0
    assert gateways.asked() == frozenset()
    assert not gateways.has_producer(("T",))


@pytest.mark.parametrize("gateway_id", ["", "x" * 256])
def test_a_gateway_needs_a_name(gateway_id: str) -> None:
    assert error_of(lambda: CheckGateways().keep(gateway_id, [])).reason() == "INVALID_ARGUMENT"
    assert error_of(lambda: CheckGateways().watch(gateway_id)).reason() == "INVALID_ARGUMENT"


def test_a_full_state_is_wanted_after_many_half_messages(log: MemoryLog, begin: Begin) -> None:
    life = begin()
    assert not life.kind.has_state()
    for number in range(5):
        log.send_half(f"m{number}")
    life.work()
    assert life.kind.has_state()
    assert life.kind.behind_full_count() == 5
    life.write_full()
    assert life.kind.behind_full_count() == 0
    assert life.kind.needed_offset() == 0
    for half in log.waiting().values():
        life.end(half)
    assert life.kind.needed_offset() > log.end, "nothing of the log is needed"


def test_retention_waits_for_the_first_half_message_that_waits(log: MemoryLog, begin: Begin) -> None:
    first, second = log.send_half("a"), log.send_half("b")
    life = begin()
    assert life.kind.needed_offset() == first.commit_log_offset
    life.end(first)
    assert life.kind.needed_offset() == second.commit_log_offset


@pytest.mark.parametrize("immunity", ["9" * 18, "-" + "9" * 18])
def test_an_immunity_time_beyond_64_bits_stops_no_checks(log: MemoryLog, begin: Begin, immunity: str) -> None:
    half = log.send_half("a", immunity=immunity)
    log.send_half("b")
    life = begin()
    producers = Producers(life.gateways, TOPIC_NAME)
    log.manual.now += 7_000
    life.work()
    assert b"b" in [check.message.body for check in producers.asked()]
    life.end(half, from_check=True)
    assert committed_bodies(log) == ["a"]


def test_a_record_behind_the_end_of_a_log_that_is_being_opened_is_not_gone() -> None:
    inside = {"firstOffset": 100, "lastOffset": 200}
    assert is_gone(OffsetOutOfRangeError("it is outside", **inside), 99)
    assert not is_gone(OffsetOutOfRangeError("it is outside", **inside), 200)
    assert is_gone(RecordNotFoundError("there is none"), 150)
    assert not is_gone(ServiceUnavailableError("it does not answer"), 99)


# -- the wall jumps forward, or the shard was down: what waits looks old at once


def given_up(log: MemoryLog) -> list[bytes]:
    """The bodies of what was given up."""
    return [message.body for message in log.messages(CHECK_MAX_TIME_TOPIC)]


@pytest.mark.parametrize("was_down", [False, True])
def test_after_a_jump_of_three_days_producers_are_asked_before_anything_is_given_up(
    log: MemoryLog, begin: Begin, was_down: bool
) -> None:
    half = log.send_half("a")
    log.send_half("b")
    life = begin()
    life.work()
    log.manual.now += PENDING_MILLIS_MAX + RENEW_MILLIS
    life = begin() if was_down else life
    producers = Producers(life.gateways, TOPIC_NAME)
    life.work()
    assert sorted(check.message.body for check in producers.asked()) == [b"a", b"b"]
    assert given_up(log) == []
    life.end(half)
    assert committed_bodies(log) == ["a"]
    asked = 1
    while not given_up(log):
        log.manual.now += 30_001
        life.work()
        asked += len(producers.asked())
    assert (asked, given_up(log)) == (MAX_CHECKS, [b"b"])


@pytest.mark.parametrize("was_down", [False, True])
def test_after_a_jump_of_three_days_a_producer_that_comes_within_an_hour_is_asked(
    log: MemoryLog, begin: Begin, was_down: bool
) -> None:
    log.send_half("a")
    log.send_half("b", topic="Other")
    life = begin()
    life.work()
    log.manual.now += PENDING_MILLIS_MAX + RENEW_MILLIS
    life = begin() if was_down else life
    for _ in range(11):
        life.work()
        log.manual.now += RENEW_MILLIS // 12
    assert given_up(log) == []
    producers = Producers(life.gateways, TOPIC_NAME)
    life.work()
    assert [check.message.body for check in producers.asked()] == [b"a"]
    for _ in range(3):
        log.manual.now += RENEW_MILLIS // 2
        life.work()
    assert given_up(log) == [b"b"]


def test_a_half_message_of_three_days_is_not_given_up_while_a_producer_can_be_asked(
    log: MemoryLog, begin: Begin
) -> None:
    log.send_half("a")
    life = begin()
    life.work()
    for _ in range(71):
        log.manual.now += RENEW_MILLIS - 10
        life.work()
    log.manual.now = 1_700_000_000_000 + PENDING_MILLIS_MAX - 60_000
    producers = Producers(life.gateways, TOPIC_NAME)
    asked = 0
    while not given_up(log):
        life.work()
        asked += len(producers.asked())
        log.manual.now += 30_001
    assert asked == MAX_CHECKS


def test_a_stream_that_waits_for_checks_is_let_go_at_the_end() -> None:
    gateways = CheckGateways()
    stream = gateways.watch("gateway-1")
    waiting = threading.Thread(target=stream.take, args=(60.0,))
    waiting.start()
    gateways.end()
    waiting.join(WAIT_SECONDS_MAX)
    assert not waiting.is_alive()
