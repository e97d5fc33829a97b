"""Read your write: a query waits until the shards have built what its caller may expect to find.

    with tokens      the records that the tokens name                         four fifths of the caller's time at most
    without tokens   what the log had when the query arrived (`at_arrival`)   the setting builder_wait_millis at most

    shard, byte of its log ──▶ its builder's progress ──▶ past it: ask
                                │ not yet: the builder's service answers when it is, or after a second
                                ▼
                              the time is over: ask, and say PARTIAL with the lag

The builder's service waits (`past_offset` of its GetStatus), so the gateway does not poll. A wait holds a thread here and one
there. The number of waits is limited, and they have their own threads, so queries that need not wait always find a thread.

Without tokens a query waits first only where the log's files show that there is something to wait for. Where only the
commitlog can tell, it is asked beside the query; an answer that turns out to be behind is waited for and asked again, once.
A builder that is catching up after a start is waited for where little is left (`CATCH_UP_BYTES_MAX`); more takes longer.

The freshness tokens of a request name the newest record of each shard (`wanted_offsets`). A token with an offset behind the
end of the shard's log is not of this log: it is of another store, or a power cut took the record before it was flushed. The
log's end is asked once, after a first wait without success.

Without tokens, a query sees its shards through `at_arrival`: an answer lacks what the log had when the query arrived, or it is
complete.

    log       |=====================|======|        the builders follow it some 15 ms behind
    builder   |==================|                  an answer from here may lack what was just acknowledged
                                    └ end at arrival: built up to there, the answer is complete, whatever is appended since

A builder itself knows an older end of the log. So the progress in each answer gets the end at arrival before a query judges
it. The end is known without a call where the log's files show that nothing lies behind what the builder had in an earlier
answer. Otherwise the commitlog is asked, beside the query's own calls.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    IS_WRITTEN_AT,
    LOG_END,
    STATUSES,
    BuildProgress,
    Built,
    Shard,
    keys_progress,
    queues_progress,
)
from gateway.ports.shards import FanOut, Shards
from gateway.queries.completeness import ShardOutcome
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.message.v1 import message_pb2
from store.errors import (
    DeadlineExceededError,
    InvalidFreshnessTokenError,
    ResourceBusyError,
    ServiceUnavailableError,
    StoreError,
)
from store.format.freshness_token import decode_freshness_token


class Part(Enum):
    """The derived files that a query reads; the value is the service that builds them."""

    INDEX = "index"
    QUEUES = "consumequeue"


class EndAtArrival:
    """The end of one shard's log when a query arrived.

    Args:
        broker_name: the shard's name.
        known_offset: the end (bytes); None: it is asked for.
        asked: the call that asks for it; None as its result while the log is being recovered.
        deadline: of that call.

    Attributes:
        error: why the end is not known; None when it is, or while the log is being recovered.
    """

    def __init__(
        self,
        broker_name: str,
        known_offset: int | None = None,
        asked: "Future[int | None] | None" = None,
        deadline: Deadline | None = None,
    ) -> None:
        self.error: StoreError | None = None
        self._broker_name = broker_name
        self._offset = known_offset
        self._asked = asked
        self._deadline = deadline

    def offset_until(self, seconds: float) -> int | None:
        """The end (bytes); waits so many seconds at most for the call that asks for it. None: not known, or not yet."""
        if self._asked is not None:
            wait((self._asked,), max(0.0, seconds))
            if not self._asked.done():
                return None
        return self.offset()

    def offset(self) -> int | None:
        """The end (bytes); waits for the call that asks for it. None: only the builder's word is left."""
        asked, deadline = self._asked, self._deadline
        if asked is not None and deadline is not None:
            try:
                self._offset = asked.result(max(0.0, deadline.at_seconds - deadline.clock()))
            except StoreError as error:
                self.error = error
            except TimeoutError:
                self.error = ServiceUnavailableError(
                    f"The commitlog of shard {self._broker_name} did not say how far its log is: the newest messages may be "
                    "missing. Ask again; reput status shows the service.",
                    service="commitlog",
                    brokerName=self._broker_name,
                )
            self._asked = None
        return self._offset

    def seen_in(self, progress: BuildProgress) -> BuildProgress:
        """The progress with this end; unchanged where the end is not known or does not matter."""
        if progress.is_final:
            return progress
        offset = self.offset()
        if offset is None:
            return progress
        # A builder may be beyond it: records that were appended since.
        offset = max(offset, progress.next_offset)
        return progress if offset == progress.log_end_offset else replace(progress, log_end_offset=offset)


@dataclass(frozen=True, slots=True)
class AtArrival:
    """The link of a query's calls.

    Attributes:
        end: of the log.
        note: gets a builder's own progress from each answer.
    """

    end: EndAtArrival
    note: Callable[[Part, BuildProgress], None]

    def __call__(self, method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        """See Link."""
        answer = below(method, request, deadline)
        if isinstance(answer, Built):
            if not answer.progress.is_final:
                self.note(Part(method.service), answer.progress)
            answer.progress = self.end.seen_in(answer.progress)
        return answer


def at_arrival(
    shards: Shards,
    ends: Mapping[str, EndAtArrival],
    note: Callable[[str, Part, BuildProgress], None],
) -> Shards:
    """The shards for one query.

    Args:
        shards: all of them.
        ends: of their logs, by name; a shard without one stays as it is.
        note: gets the progress in each answer, with the shard's name and the part.
    """
    if not ends:
        return shards
    seen = []
    for shard in shards:
        name = shard.broker_name
        end = ends.get(name)
        if end is None:
            seen.append(shard)
            continue
        seen.append(shard.with_link(Concern.ARRIVAL, AtArrival(end, partial(note, name))))
    return Shards(seen, shards.fan_out)


# As many as a request can have appended.
TOKEN_COUNT_MAX = 1_024
# The state of a builder that is switched off (services/following/follower_process.py).
BUILDER_OFF = "off"


def wanted_offsets(shards: Shards, tokens: Iterable[str]) -> dict[str, int]:
    """Where the newest record of the tokens starts (bytes of the log), by shard.

    Raises:
        InvalidFreshnessTokenError: a token is none, or of no shard here; or they are too many.
    """
    names = {shard.broker_name for shard in shards}
    wanted: dict[str, int] = {}
    for count, text in enumerate(tokens, 1):
        if count > TOKEN_COUNT_MAX:
            raise InvalidFreshnessTokenError(
                f"freshness_tokens has more than {TOKEN_COUNT_MAX} tokens: the newest of each shard is enough.",
                field="freshness_tokens",
                countMax=TOKEN_COUNT_MAX,
            )
        token = decode_freshness_token(text)
        if token.broker_name not in names:
            raise InvalidFreshnessTokenError(
                f"A freshness token is of shard {token.broker_name!r}, which this gateway does not serve; it serves "
                f"{', '.join(sorted(names))}.",
                field="freshness_tokens",
                brokerName=token.broker_name,
            )
        wanted[token.broker_name] = max(wanted.get(token.broker_name, 0), token.commit_log_offset)
    return wanted


def is_coming(shard: Shard, part: Part, offset: int, until: Deadline) -> bool:
    """Whether a wait can succeed: not for a builder that is switched off.

    InvalidFreshnessTokenError when the shard's log ends before the offset.
    """
    is_off = False
    for row in shard.call(STATUSES, None, until):
        status = row.status
        is_off = is_off or (status.service == part.value and status.state == BUILDER_OFF)
        is_known = row.error is None and not status.catching_up
        if status.service == "commitlog" and is_known and status.log_end_offset <= offset:
            raise InvalidFreshnessTokenError(
                f"A freshness token names byte {offset} of the log of shard {shard.broker_name}, which ends at byte "
                f"{status.log_end_offset}: the token is of another store, or a crash took the message before it was on "
                "the disk.",
                field="freshness_tokens",
                brokerName=shard.broker_name,
                commitLogOffset=offset,
                logEndOffset=status.log_end_offset,
            )
    return not is_off


Answer = TypeVar("Answer")

WAITING_COUNT_MAX = 32
# The share of the caller's time for the wait; the rest is for the query.
WAIT_SHARE = 0.8
# A record is built some 15 ms after its append. After this longer wait the log is asked whether it has such a record.
FIRST_WAIT_SECONDS = 0.25
NEXT_WAIT_SECONDS = 1.0
# With less time left, another call would not return in time.
WAIT_SECONDS_MIN = 0.002
# The pause before a service is asked again that had no place to wait.
PAUSE_SECONDS = 0.01
# A commitlog says where its log ends in less than a millisecond. After this time it hangs.
END_SECONDS_MAX = 1.0
BUILDER_WAIT_SECONDS_DEFAULT = 0.05
# What a builder catches up with in about a second. What is further behind after a start is not waited for.
CATCH_UP_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Freshness:
    """What a query may expect to find, and the shards that did not reach it in time.

    Attributes:
        part: what the query looks into.
        shards: the shards to ask.
        wanted: where the newest record of a token starts (bytes of the log), by shard.
        late: shards that have not built it, with their progress where it is known.
        known_ends: of the logs when the query arrived (bytes), by shard, when all of them are built. Then `shards` are as they
            came, which costs a query less; an answer that was made of something else is asked for once more.
        ends: of the logs when the query arrived, by shard, in all other cases; both are empty for a query with tokens.
        deadline: the caller's.
        arrived_seconds: when the query arrived, on the deadline's clock.
        waited: shards for whose ends the query has waited.
    """

    part: Part
    shards: Shards
    wanted: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, BuildProgress | None] = field(default_factory=dict)
    known_ends: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, EndAtArrival] = field(default_factory=dict)
    deadline: Deadline | None = None
    arrived_seconds: float = 0.0
    waited: set[str] = field(default_factory=set)

    def judge(
        self, outcomes: Sequence[ShardOutcome], completeness: message_pb2.Completeness
    ) -> tuple[tuple[ShardOutcome, ...], message_pb2.Completeness]:
        """The outcomes and the completeness after the query: PARTIAL when a shard is late."""
        if self.ends:
            ended = tuple(map(self._judge_end, outcomes))
            is_unknown = any(outcome.broker_name in self.ends and not outcome.complete for outcome in ended)
            return ended, message_pb2.COMPLETENESS_PARTIAL if is_unknown else completeness
        if not self.wanted:
            return tuple(outcomes), completeness
        judged = tuple(map(self._judge_one, outcomes))
        is_late = any(self._is_late(outcome) for outcome in outcomes)
        return judged, message_pb2.COMPLETENESS_PARTIAL if is_late else completeness

    def is_behind_end(self, outcome: ShardOutcome) -> bool:
        """Whether the answer lacks what the log had when the query arrived, and a wait can change that."""
        end, progress = self.ends.get(outcome.broker_name), outcome.progress
        if end is None or progress is None or outcome.complete or progress.is_final:
            return False
        offset = end.offset()
        return offset is not None and progress.next_offset < offset and not is_far_behind(progress, offset)

    def _judge_end(self, outcome: ShardOutcome) -> ShardOutcome:
        """The outcome with the reason why it is not complete: the log's end is not known, or not reached."""
        end, progress = self.ends.get(outcome.broker_name), outcome.progress
        if end is None or progress is None or outcome.error is not None or progress.is_final:
            return outcome
        offset = end.offset()
        if end.error is not None:
            return replace(outcome, error=end.error, complete=False)
        if offset is None or not self.is_behind_end(outcome):
            return outcome
        error = DeadlineExceededError(
            f"The {self.part.value} of shard {outcome.broker_name} is built up to byte {progress.next_offset}, and its log "
            f"had {offset} when the query arrived: the newest messages may be missing. Ask again.",
            brokerName=outcome.broker_name,
            logEndOffset=offset,
            nextOffset=progress.next_offset,
        )
        return replace(outcome, error=error)

    def _is_late(self, outcome: ShardOutcome) -> bool:
        offset = self.wanted.get(outcome.broker_name)
        if offset is None:
            return False
        if outcome.progress is None:
            return outcome.broker_name in self.late
        # Also a shard that was in time and has started to rebuild since.
        is_behind = outcome.broker_name in self.late or outcome.progress.is_behind
        return is_behind and outcome.progress.next_offset <= offset

    def _judge_one(self, outcome: ShardOutcome) -> ShardOutcome:
        if not self._is_late(outcome):
            return outcome
        progress = outcome.progress or self.late.get(outcome.broker_name)
        offset = self.wanted[outcome.broker_name]
        how_far = f"up to byte {progress.next_offset}" if progress is not None else "not so far as is known"
        error = outcome.error or DeadlineExceededError(
            f"The {self.part.value} of shard {outcome.broker_name} is built {how_far}, and the record of a freshness "
            f"token starts at byte {offset} of its log: ask again, or allow more time.",
            brokerName=outcome.broker_name,
            commitLogOffset=offset,
            nextOffset=progress.next_offset if progress is not None else -1,
        )
        return replace(outcome, error=error, progress=progress, complete=False)


class FreshnessWaits:
    """Makes queries wait; thread-safe.

    Args:
        waiting_count_max: queries that may wait at the same time, and threads on which all of them ask further shards.
        pause: waits for so many seconds.
        builder_wait_seconds: how long a query without tokens waits at most.
    """

    def __init__(
        self,
        waiting_count_max: int = WAITING_COUNT_MAX,
        pause: Callable[[float], object] = time.sleep,
        builder_wait_seconds: float = BUILDER_WAIT_SECONDS_DEFAULT,
    ) -> None:
        self._places = threading.BoundedSemaphore(waiting_count_max)
        self._waiting_count_max = waiting_count_max
        self._pause = pause
        self._builder_wait_seconds = builder_wait_seconds
        self._seen: dict[tuple[str, str], BuildProgress] = {}  # by shard and part
        # Not the threads of queries: waits of a second each would leave none for queries without tokens.
        self._fan_out = FanOut(waiting_count_max)

    def close(self) -> None:
        """End the threads; later waits fail."""
        self._fan_out.close()

    def ask(
        self,
        shards: Shards,
        tokens: Sequence[str],
        part: Part,
        deadline: Deadline,
        query: Callable[[Shards], tuple[Answer, Sequence[ShardOutcome], message_pb2.Completeness]],
        broker_name: str = "",
        *,
        before: bool | None = None,
    ) -> tuple[Answer, Sequence[ShardOutcome], message_pb2.Completeness]:
        """The answer of a query that finds what its caller may expect.

        Args:
            shards, tokens, part, deadline, broker_name, before: as `wait`.
            query: asks shards; its answer, outcomes and completeness. Called twice when the first answer was behind.

        Raises:
            StoreError: as `wait` and the query.
        """
        freshness = self.wait(shards, tokens, part, deadline, broker_name, before=before)
        answer, outcomes, completeness = query(freshness.shards)
        again = self.again(freshness, outcomes)
        if again is not None:
            freshness = again
            answer, outcomes, completeness = query(freshness.shards)
        return answer, *freshness.judge(outcomes, completeness)

    def wait(
        self,
        shards: Shards,
        tokens: Sequence[str],
        part: Part,
        deadline: Deadline,
        broker_name: str = "",
        *,
        before: bool | None = None,
    ) -> Freshness:
        """Wait until the shards have built what the tokens name, or what they have to have without tokens.

        Args:
            shards: all shards.
            tokens: of the request.
            part: what the query looks into.
            deadline: the caller's.
            broker_name: the only shard that the query asks; empty: all.
            before: whether to wait before the query: always, as for a scan, which is not made twice; never, as for a query that
                may not need what is missing; or None, where the log's files show that something is missing. What was not
                waited for before is waited for by `again`.

        Raises:
            InvalidFreshnessTokenError: a token is malformed, or not of these shards' logs.
            ResourceBusyError: too many queries wait for tokens.
        """
        if tokens:
            return self._wait_for_tokens(shards, tokens, part, deadline)
        now = deadline.clock()
        known_ends: dict[str, int] = {}
        ends: dict[str, EndAtArrival] = {}
        behind: list[Shard] = []
        for shard in shards:
            name = shard.broker_name
            if not shard.has(LOG_END) or broker_name not in ("", name):
                continue
            seen = self._seen.get((name, part.value))
            is_written = None
            if seen is not None and not seen.catching_up:
                is_written = shard.call(IS_WRITTEN_AT, seen.next_offset, deadline)
            if seen is not None and is_written is False:
                known_ends[name] = seen.next_offset
                continue
            asked_until = replace(deadline, at_seconds=min(deadline.at_seconds, now + END_SECONDS_MAX))
            asked = shards.fan_out.start(partial(shard.call, LOG_END, log_pb.GetStatusRequest(), asked_until))
            ends[name] = EndAtArrival(name, None, asked, asked_until)
            if is_written if before is None else before:
                behind.append(shard)
        if not ends and not before:
            return Freshness(part, shards, known_ends=known_ends, deadline=deadline, arrived_seconds=now)
        freshness = self._seen_by(Freshness(part, shards, deadline=deadline, arrived_seconds=now), known_ends, ends)
        self._wait_for_ends(behind, freshness)
        return freshness

    def again(self, freshness: Freshness, outcomes: Sequence[ShardOutcome]) -> Freshness | None:
        """After a query: None when its answer stands; otherwise what to ask again with, after a wait where one is needed."""
        if freshness.known_ends:
            if not self._has_changed(freshness, outcomes):
                return None
            freshness = self._seen_by(freshness, freshness.known_ends, {})
            late = {
                row.broker_name
                for row in outcomes
                if row.progress and not is_far_behind(row.progress, freshness.ends[row.broker_name].offset())
            }
            self._wait_for_ends([shard for shard in freshness.shards if shard.broker_name in late], freshness)
            return freshness
        behind = {
            outcome.broker_name
            for outcome in outcomes
            if freshness.is_behind_end(outcome) and outcome.broker_name not in freshness.waited
        }
        waited = bool(behind) and self._wait_for_ends(
            [shard for shard in freshness.shards if shard.broker_name in behind], freshness
        )
        return freshness if waited else None

    def _has_changed(self, freshness: Freshness, outcomes: Sequence[ShardOutcome]) -> bool:
        """Whether a builder was at another place than at the end of its log as it was when the query arrived."""
        for outcome in outcomes:
            name, progress = outcome.broker_name, outcome.progress
            offset = freshness.known_ends.get(name)
            if offset is None or progress is None or progress.is_final:
                continue
            self._note(name, freshness.part, progress)
            # Where the builder heard of newer records, only an answer that it calls incomplete for them is made once more.
            has_moved = progress.next_offset < offset or (progress.is_behind and not outcome.complete)
            if has_moved and not is_far_behind(progress, offset):
                return True
        return False

    def _seen_by(
        self, freshness: Freshness, known_ends: Mapping[str, int], ends: Mapping[str, EndAtArrival]
    ) -> Freshness:
        """With shards whose answers are judged by the ends at arrival."""
        ends = {**ends, **{name: EndAtArrival(name, offset) for name, offset in known_ends.items()}}
        return replace(freshness, shards=at_arrival(freshness.shards, ends, self._note), known_ends={}, ends=ends)

    def _note(self, broker_name: str, part: Part, progress: BuildProgress) -> None:
        self._seen[broker_name, part.value] = progress

    def _wait_for_ends(self, behind: Sequence[Shard], freshness: Freshness) -> bool:
        """Wait until the shards have built what their logs had; whether there was time to wait."""
        deadline, now = freshness.deadline, freshness.arrived_seconds
        if not behind or deadline is None or self._builder_wait_seconds <= 0:
            return False
        share = (deadline.at_seconds - now) * WAIT_SHARE
        until = replace(deadline, at_seconds=now + min(share, self._builder_wait_seconds))
        freshness.waited.update(shard.broker_name for shard in behind)

        def wait_for(shard: Shard) -> None:
            offset = freshness.ends[shard.broker_name].offset_until(until.at_seconds - until.clock())
            seen = self._seen.get((shard.broker_name, freshness.part.value))
            if seen is not None and is_far_behind(seen, offset):  # as it was in the last answer
                seen = _progress_of(shard, freshness.part)(until)
                self._note(shard.broker_name, freshness.part, seen)
            if offset and (seen is None or not (is_far_behind(seen, offset) or seen.next_offset >= offset)):
                self._wait_for(shard, offset - 1, freshness.part, until, checks_log=False)

        # Without a place the query asks at once, and says what it lacks.
        if not self._places.acquire(timeout=max(0.0, until.at_seconds - until.clock())):
            return False
        try:
            self._fan_out.ask(behind, wait_for)  # the query reports a shard that does not answer
        finally:
            self._places.release()
        return True

    def _wait_for_tokens(self, shards: Shards, tokens: Sequence[str], part: Part, deadline: Deadline) -> Freshness:
        """At most for four fifths of the remaining time."""
        wanted = wanted_offsets(shards, tokens)
        now = deadline.clock()
        until = replace(deadline, at_seconds=now + (deadline.at_seconds - now) * WAIT_SHARE)
        if not self._places.acquire(blocking=False):
            raise ResourceBusyError(
                f"{self._waiting_count_max} queries wait for their freshness tokens, the most that this gateway allows: "
                "try again.",
                countMax=self._waiting_count_max,
            )
        try:
            asked = [shards.named(name) for name in wanted]
            answers = self._fan_out.ask(
                asked, lambda shard: self._wait_for(shard, wanted[shard.broker_name], part, until)
            )
        finally:
            self._places.release()
        late: dict[str, BuildProgress | None] = {}
        for name, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, InvalidFreshnessTokenError):
                raise answer
            if isinstance(answer, StoreError):
                late[name] = None  # the query will report the shard's error
            elif answer.next_offset <= wanted[name]:
                late[name] = answer
        return Freshness(part, shards, wanted, late)

    def _wait_for(
        self, shard: Shard, offset: int, part: Part, until: Deadline, *, checks_log: bool = True
    ) -> BuildProgress:
        """The shard's progress once it is past an offset, or when the time is over.

        `checks_log`: the log may have no such offset.
        """
        ask = _progress_of(shard, part)
        seconds_max = FIRST_WAIT_SECONDS
        while True:
            began = until.clock()
            seconds = min(seconds_max, (until.at_seconds - began) * WAIT_SHARE)
            progress = ask(until, offset, max(seconds, 0.0))
            remaining = until.at_seconds - until.clock()
            if progress.next_offset > offset or remaining < WAIT_SECONDS_MIN:
                return progress
            if checks_log and seconds_max < NEXT_WAIT_SECONDS:
                seconds_max = NEXT_WAIT_SECONDS
                if not is_coming(shard, part, offset, until):
                    return progress
            if until.clock() - began < seconds / 2:
                self._pause(min(PAUSE_SECONDS, remaining))


def is_far_behind(progress: BuildProgress, log_end_offset: int | None) -> bool:
    """Whether a builder catches up after a start with more than is waited for.

    `log_end_offset`: where it will have caught up (bytes); None: unknown, which counts as far.
    """
    return progress.catching_up and (
        log_end_offset is None or log_end_offset - progress.next_offset > CATCH_UP_BYTES_MAX
    )


def _progress_of(shard: Shard, part: Part) -> Callable[..., BuildProgress]:
    return partial(keys_progress if part is Part.INDEX else queues_progress, shard)
