"""Random lives of transactions, with kills at appends that were written or not: each message has the end that was answered.

What is judged, from the log alone:
- a commit that was answered left exactly one copy, a rollback none; one whose answer was lost left one copy or none;
- each half message waits, or was committed, rolled back or given up, once; nothing is lost;
- producers were asked fifteen times at most;
- what a life knows is what brute force says.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.state.schedule_state import ScheduleState
from schedule_svc.transactions.checker import CheckGateways
from schedule_svc.transactions.transactions import TransactionCounts
from store.errors import StoreError, TransactionNotFoundError
from store.format.properties import TRANSACTION_CHECK_TIMES, UNIQ_KEY
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.schedule_svc.transactions.lives import (
    MAX_CHECKS,
    TOPIC_NAME,
    LogLife,
    MemoryLog,
    Producers,
    committed_bodies,
)

COMMIT, ROLLBACK, BOTH = {True}, {False}, {True, False}
STEPS = (
    *("send",) * 5, *("verdict",) * 4, *("wait",) * 4, *("answer",) * 3,
    "full", "crash", "break", "again", "gateway", "retention", "stale",
)  # fmt: skip


class Run:
    """One run on one log; `random` decides everything."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance
        self.log = MemoryLog()
        self.counts = TransactionCounts()
        self.sent: dict[str, StoredMessage] = {}
        self.verdicts: dict[str, bool] = {}  # answered
        self.maybe: dict[str, set[bool]] = {}  # asked for, and not answered
        self.ids: dict[str, str] = {}  # the newest transaction id of a check
        self.asked: Counter[str] = Counter()
        self.removed: set[str] = set()
        self.old_states: list[ScheduleState] = []
        self.gateways = CheckGateways(lambda: 0.0, random.Random(0).choice)  # called by another thread
        self.producers = [Producers(self.gateways, TOPIC_NAME)]
        self.life = LogLife(self.log, self.gateways, self.counts, ends_together=self.random.random() < 0.5)

    def run(self, steps: list[str]) -> None:
        """All steps, and the end."""
        for step in steps:
            try:
                getattr(self, step)()
            except TransactionNotFoundError:
                raise
            except StoreError:
                if self.life.life.error is not None or self.life.writer.error is not None:
                    self.crash()
        self.finish()

    # -- steps

    def send(self) -> None:
        """A producer sends a half message, which may not be known here for a while."""
        body = f"m{len(self.sent)}"
        self.sent[body] = self.log.send_half(body)
        if self.random.random() < 0.5:
            self.work()

    def verdict(self) -> None:
        """A producer says its verdict for one of its newest messages."""
        open_ones = [body for body in self.sent if body not in self.verdicts]
        if open_ones:
            body = self.random.choice(open_ones[-5:])
            self.decide(body, lambda commit: self.life.end(self.sent[body], commit=commit))

    def answer(self) -> None:
        """A producer answers checks, late or not."""
        self.hear()
        if self.ids:
            body = self.random.choice(list(self.ids))
            self.decide(body, lambda commit: self.life.end_by_id(self.ids[body], commit=commit, from_check=True))

    def decide(self, body: str, end: Callable[[bool], object], commit: bool | None = None) -> None:
        """Say a verdict, and note what it did."""
        commit = self.random.random() < 0.5 if commit is None else commit
        try:
            end(commit)
        except TransactionNotFoundError:
            had_end = body in self.verdicts or body in self.maybe or body in self.given_up() or body in self.removed
            if not had_end:
                pytest.fail(f"{body} waits, but its verdict was refused")
        except StoreError:
            self.maybe.setdefault(body, set()).add(commit)
            raise
        else:
            assert body not in self.verdicts, f"{body} got a second verdict"
            self.verdicts[body] = commit

    def again(self) -> None:
        """A verdict comes again, with the other word."""
        if self.verdicts:
            body = self.random.choice(list(self.verdicts))
            with pytest.raises(TransactionNotFoundError):
                self.life.end(self.sent[body], commit=not self.verdicts[body])

    def wait(self) -> None:
        """Time passes."""
        self.log.manual.now += self.random.choice((500, 3_000, 31_000, 31_000, 4_000_000))
        self.work()

    def work(self) -> None:
        """What is due is done."""
        self.life.work()
        self.hear()

    def hear(self) -> None:
        """The gateways hear what was asked."""
        for producers in self.producers:
            for check in producers.asked():
                body = check.message.body.decode()
                self.asked[body] += 1
                self.ids[body] = check.transaction_id
                assert check.message.properties[UNIQ_KEY] == f"key of {body}"

    def gateway(self) -> None:
        """A gateway comes or goes, or there is none for a while."""
        if len(self.producers) > self.random.randint(0, 2):
            self.hear()
            gone = self.producers.pop()
            self.gateways.forget(gone.stream)
        else:
            name = f"g{self.random.randint(0, 9)}"
            self.producers.append(Producers(self.gateways, TOPIC_NAME, gateway_id=name))

    def full(self) -> None:
        """The full state is written."""
        self.life.write_full()
        self.old_states.append(self.log.state().states)

    def stale(self) -> None:
        """A life begins from an old full state, or from none."""
        self.begin(self.random.choice([*self.old_states, ScheduleState()]))

    def break_(self) -> None:
        """One of the next appends is not answered, written or not."""
        self.log.appends_left = self.random.randint(0, 3)
        self.log.writes_failing = self.random.random() < 0.5

    def crash(self) -> None:
        """The service is killed; the next life begins from the newest full state."""
        self.begin(None)

    def retention(self) -> None:
        """Retention removes what nobody needs, and now and then half messages that wait."""
        self.full()
        state = self.log.state().states.transactions
        ops = self.log.queues.get((OP_HALF_TOPIC, 0))
        halves = self.log.queues.get((HALF_TOPIC, 0))
        if ops is None or halves is None:
            return
        count = max(state.half_offset - halves.first, 0)
        if self.random.random() < 0.3 and halves.units[count:]:
            self.removed.add(self.log.records[halves.units[count].commit_log_offset].body.decode())
            count += 1
        self.log.remove(HALF_TOPIC, 0, count)
        self.log.remove(OP_HALF_TOPIC, 0, max(state.op_offset - ops.first, 0))
        self.old_states = self.old_states[-1:]
        self.ids.clear()

    def begin(self, state: ScheduleState | None) -> None:
        """A new life."""
        self.life.close()
        self.log.appends_left = None
        self.life = LogLife(self.log, self.gateways, self.counts, state)
        known = {row.unique_key for row in self.life.pending()}
        assert known == {half.properties[UNIQ_KEY] for half in self.waiting()}

    # -- the end

    def waiting(self) -> list[StoredMessage]:
        """The half messages that wait, by brute force; op records that retention removed named none of them."""
        first = max((state.transactions.half_offset for state in self.old_states), default=0)
        return [half for offset, half in self.log.waiting().items() if offset >= first]

    def given_up(self) -> list[str]:
        """The messages that were given up."""
        return committed_bodies(self.log, CHECK_MAX_TIME_TOPIC)

    def finish(self) -> None:
        """Judge what the log has, and let everything that waits be given up."""
        self.log.appends_left = None
        self.crash()
        copies = Counter(committed_bodies(self.log))
        for body, commit in self.verdicts.items():
            assert copies[body] == int(commit), f"{body}: {copies[body]} copies, committed: {commit}"
        waiting = Counter(half.body.decode() for half in self.waiting())
        assert not [body for body, count in waiting.items() if count > 1], "a half message waits twice"
        for body in self.sent:
            ends = [body in waiting, body in copies, body in self.given_up()]
            if body in self.verdicts or body in self.maybe or body in self.removed:
                assert sum(ends) <= 1, f"{body} has several ends: {ends}"
                assert ends[0] or ends[1] or ends[2] or body in self.removed or not self.must_be(body)
            else:
                assert sum(ends) == 1, f"{body} is lost or has several ends: {ends}"
        if not self.producers:
            self.gateway()
            self.producers = self.producers or [Producers(self.gateways, TOPIC_NAME)]
        for _ in range(MAX_CHECKS + 3):
            self.log.manual.now += 31_000
            self.work()
        assert self.waiting() == []
        given_up = Counter(self.given_up())
        assert max(given_up.values(), default=1) == 1
        assert {body for body in waiting if body not in self.removed} <= set(given_up)
        assert max(self.asked.values(), default=0) <= MAX_CHECKS
        times = [int(half.properties.get(TRANSACTION_CHECK_TIMES, "0")) for half in self.log.messages(HALF_TOPIC)]
        assert max(times, default=0) <= MAX_CHECKS

    def must_be(self, body: str) -> bool:
        """Whether a message without a copy, which does not wait, must have one."""
        if body in self.verdicts:
            return self.verdicts[body]
        return False not in self.maybe.get(body, BOTH)

    def close(self) -> None:
        """End."""
        self.life.close()


def run(chance: random.Random, steps: list[str]) -> None:
    """One run to its end."""
    one = Run(chance)
    try:
        one.run(["break_" if step == "break" else step for step in steps])
    finally:
        one.close()


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(STEPS), max_size=60))
def test_each_message_has_the_end_that_was_answered(chance: random.Random, steps: list[str]) -> None:
    run(chance, steps)


@pytest.mark.parametrize("seed", range(20))
def test_long_lives_lose_nothing(seed: int) -> None:
    chance = random.Random(seed)
    run(chance, [chance.choice(STEPS) for _ in range(250)])


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("at", range(9))
def test_a_kill_at_each_append_of_a_story_loses_nothing(at: int, is_written: bool) -> None:
    """Commit, rollback, a check, its answer, fifteen checks of another; the append with this number is not answered."""
    one = Run(random.Random(at))
    try:
        for _ in range(4):
            one.send()
        one.log.appends_left, one.log.writes_failing = at, is_written
        story = [
            lambda: one.decide("m0", lambda commit: one.life.end(one.sent["m0"], commit=commit), commit=True),
            lambda: one.decide("m1", lambda commit: one.life.end(one.sent["m1"], commit=commit), commit=False),
            *[one.wait] * 4,
            one.answer,
            *[one.wait] * 4,
        ]
        for step in story:
            try:
                step()
            except TransactionNotFoundError:
                raise
            except StoreError:
                one.crash()
        one.finish()
    finally:
        one.close()
