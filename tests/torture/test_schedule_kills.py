"""Kills, power cuts, stops and clocks that jump around messages that wait: each due one is in the log once and never early.

The services run as processes of their own on one store. Messages of all kinds that wait are sent through the gateway, recalled,
committed, rolled back or left undecided (`waiting_work.py`); in the end all that is due has come, all stop, and the log's own
bytes are the judge.
"""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed
from tests.torture.stores import TIME_LIMIT, choose
from tests.torture.test_random_kills import NAMES, Services, all_services
from tests.torture.tools import faketime
from tests.torture.tools.armed_calls import ArmedCalls
from tests.torture.waiting_work import Kind, Sender, Sent, Work, drain, log_problems, pending_problems

pytestmark = TIME_LIMIT
VICTIMS = ("schedule", "commitlog", "consumequeue", "gateway")
SENDER_COUNT = 2
EVERY = 1_000_000
SYNC = {"REPUT_COMMITLOG_FLUSH_MODE": "sync"}
# Calls of a service from just before an event: its own, and some of what the service does beside.
CALL_COUNT = 12
EVENT_SECONDS_MAX = 6.0
HOUR = 3600
# A clock that is set back between a look at it and the append (docs/adr/0056-messages-that-wait-are-records-of-the-log.md).
SET_BACK_MILLIS = 3_000


class Case(NamedTuple):
    """What dies, at which call of which service from just before an event; `action` as in faulty_os.py, or `other`."""

    event: Kind
    counted: str
    action: str
    victim: str
    number: int


def judge(services: Services, store: Path, work: list[Work], seed: int, early_millis_max: int = 0) -> None:
    """Let everything due come, stop everything, and compare the log with what was answered."""
    sent = [each for one in work for each in one.sent]
    problems = [problem for one in work for problem in one.problems]
    status = drain(services)
    problems += pending_problems(services, sent)
    assert services.stop() == dict.fromkeys(NAMES, 0)
    problems += log_problems(store, sent, early_millis_max)
    print(
        f"{len(sent)} messages, {sum(each.is_acked for each in sent)} with a receipt; {status.transaction_count} undecided"
    )
    assert not problems, f"seed {seed}:\n" + "\n".join(problems[:20])


def pause(services: Services, name: str, seconds: float) -> None:
    """A service stands still."""
    pid = services.running(name).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)  # the fault itself
    finally:
        os.kill(pid, signal.SIGCONT)


def test_waiting_messages_under_random_kills_and_stops_come_once_and_never_early(tmp_path: Path) -> None:
    seed = pick_seed("schedule-kills")
    chance = random.Random(seed)
    store = tmp_path / "store"
    with all_services(store) as services:
        senders = [Sender(services.gateway, seed + number) for number in range(SENDER_COUNT)]
        work = [sender.work for sender in senders]
        try:
            for _ in range(amount(sample=2, change=6, full=400)):
                wait_for_acks(work, chance.randrange(5, 60))
                problems = [problem for one in work for problem in one.problems]
                assert not problems, f"seed {seed}: {problems[:5]}\n{services.running('schedule').log()[-3000:]}"
                if chance.random() < 0.2:
                    pause(services, "schedule", chance.uniform(0.5, 4.0))
                    continue
                names = tuple(chance.sample(VICTIMS, chance.choice((1, 1, 2, 4))))
                services.kill(names)
                services.start(names)
            wait_for_acks(work, 20)
        finally:
            for sender in senders:
                sender.stop()
        judge(services, store, work, seed)


def wait_for_acks(work: list[Work], count: int) -> None:
    """Return when that many more messages have receipts."""
    target = sum(one.acked_count for one in work) + count
    wait_until(lambda: sum(one.acked_count for one in work) >= target, f"{target} receipts")


def cases() -> list[Case]:
    """Every service at every call around every event."""
    whats = [("commitlog", action, "commitlog") for action in ("kill", "torn_kill", "cut", "cut_some")]
    whats += [("commitlog", "other", victim) for victim in ("schedule", "gateway", "consumequeue")]
    whats += [("consumequeue", action, "consumequeue") for action in ("kill", "torn_kill")]
    events = [kind for kind in Kind if kind is not Kind.UNDECIDED]
    return [Case(event, *what, number) for event in events for what in whats for number in range(1, CALL_COUNT + 1)]


def test_a_death_at_any_call_around_a_due_message_or_a_verdict_leaves_each_message_once(tmp_path: Path) -> None:
    seed = pick_seed("schedule-calls")
    chance = random.Random(seed)
    store, calls, every = tmp_path / "store", ArmedCalls(tmp_path / "armed"), cases()
    numbers = choose(len(every), amount(sample=3, change=6, full=EVERY), seed)
    died = 0
    with all_services(store, {**calls.environment, **SYNC}) as services:
        work = Work(services.gateway)
        try:
            for number in numbers:
                died += run_case(every[number - 1], services, calls, work, chance)
        finally:
            work.close()
        judge(services, store, [work], seed)
    print(f"died at {died} of {len(numbers)} calls")
    assert died > len(numbers) // 3, "the calls are not those of the events"


def run_case(case: Case, services: Services, calls: ArmedCalls, work: Work, chance: random.Random) -> bool:
    """One event with its death; all run again when this returns. Whether it died at its call."""
    about = f"{case.counted}-{case.action}-{case.victim}-{case.number}-"
    victim = services.running(case.victim)
    action = f"other {victim.pid}" if case.action == "other" else case.action
    ahead_millis = 20_000 if case.event is Kind.RECALLED else 1_100
    sent = work.send(case.event, chance, about, ahead_millis)
    assert sent.is_acked, f"{about}: nothing had died yet, {work.problems}"
    if case.event in (Kind.DELAYED, Kind.TIMED):
        time.sleep(0.9)  # so that the calls that count are those of the delivery
    calls.arm(case.counted, case.number, action)
    ending = threading.Thread(target=work.end, args=(sent,), daemon=True)
    ending.start()
    try:
        victim.process.wait(EVENT_SECONDS_MAX)
        has_died = True
    except subprocess.TimeoutExpired:
        has_died = False
        calls.disarm()
    names = NAMES if case.action.startswith("cut") else tuple({case.victim, case.counted})
    bury(services, names)
    services.start(names)
    ending.join(WAIT_SECONDS_MAX)
    assert not ending.is_alive(), f"{about}: the verdict hangs"
    return has_died


def bury(services: Services, names: tuple[str, ...]) -> None:
    """Kill those that live still; the others have died as they should."""
    for name in names:
        running = services.running(name)
        if running.process.poll() not in (None, -signal.SIGKILL):
            raise AssertionError(f"{name} had ended by itself:\n{running.log()[-3000:]}")
        running.__exit__(None, None, None)


def test_a_death_at_any_call_of_a_clean_stop_of_the_schedule_service_loses_no_timer(tmp_path: Path) -> None:
    seed = pick_seed("schedule-stop")
    chance = random.Random(seed)
    store, calls = tmp_path / "store", ArmedCalls(tmp_path / "armed")
    died = 0
    with all_services(store, {**calls.environment, **SYNC}) as services:
        work = Work(services.gateway)
        try:
            for number in range(1, 1 + amount(sample=1, change=3, full=60)):
                recalled = [work.send(Kind.RECALLED, chance, f"stop-{number}-") for _ in range(3)]
                for _ in range(5):
                    work.send(Kind.TIMED, chance, f"stop-{number}-")
                work.end(recalled[0])
                running = services.running("schedule")
                calls.arm("schedule", number % 16 + 1 if number > 1 else 1, chance.choice(("kill", "torn_kill", "cut")))
                died += running.stop() == -signal.SIGKILL
                calls.disarm()
                running.__exit__(None, None, None)
                services.start(("schedule",))
                for sent in recalled[1:]:
                    work.end(sent)
        finally:
            work.close()
        judge(services, store, [work], seed)
    print(f"died at {died} calls")


@pytest.mark.skipif(bool(faketime.why_missing()), reason=faketime.why_missing() or "libfaketime is there")
def test_waiting_messages_on_clocks_that_jump_come_once_and_never_before_their_store_time(tmp_path: Path) -> None:
    seed = pick_seed("schedule-clocks")
    chance = random.Random(seed)
    store, clock = tmp_path / "store", faketime.FakeClock(tmp_path / "clock")
    now = farthest = 0
    with all_services(store, clock.environment) as services:
        work = Work(services.gateway, lambda: time.time_ns() // 1_000_000 + now * 1_000)
        try:
            for _ in range(amount(sample=2, change=6, full=200)):
                open_ends = send_some(work, chance)
                # What the log has is where time stands when the clock is set back.
                now += chance.choice((0, HOUR, 2 * HOUR, -HOUR, -2 * HOUR, 1, -1))
                farthest = max(farthest, now)
                clock.set_seconds(now)
                open_ends += send_some(work, chance)
                what = chance.random()
                if what < 0.3:
                    pause(services, "schedule", chance.uniform(0.5, 3.0))
                elif what < 0.5:
                    pid = services.running("schedule").pid
                    services.kill(("schedule",))
                    faketime.clear(pid)
                    services.start(("schedule",))
                for sent in open_ends:
                    work.end(sent)
            now = farthest + 1
            clock.set_seconds(now)
            send_some(work, chance)
        finally:
            work.close()
        pids = [services.running(name).pid for name in NAMES]
        judge(services, store, [work], seed, SET_BACK_MILLIS)
        for pid in pids:
            faketime.clear(pid)


def send_some(work: Work, chance: random.Random) -> list[Sent]:
    """A message of each kind, in any order."""
    kinds = list(Kind)
    chance.shuffle(kinds)
    return [work.send(kind, chance) for kind in kinds]
