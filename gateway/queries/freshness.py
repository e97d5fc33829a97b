"""Read your write: a query with freshness tokens waits until the shards have built the records that the tokens name.

    token ──▶ shard, byte of its log ──▶ its builder's progress ──▶ past it: ask
                                           │ not yet: the builder's service answers when it is, or after a second
                                           ▼
                                         four fifths of the caller's time are over: ask, and say PARTIAL with the lag

The builder's service waits (`past_offset` of its GetStatus), so the gateway does not poll. A wait holds a thread here and one
there. The number of waits is limited, and they have their own threads, so queries without tokens always find a thread.

A token with an offset behind the end of the shard's log is not of this log: it is of another store, or a power cut took the
record before it was flushed. The log's end is asked once, after a first wait without success.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from gateway.ports.deadline import Deadline
from gateway.ports.fan_out import FanOut
from gateway.ports.shard import BuildProgress, KeyLocator, QueueLocator, Shard
from gateway.ports.shards import Shards
from gateway.queries.completeness import Completeness, ShardOutcome
from store.errors import DeadlineExceededError, InvalidFreshnessTokenError, ResourceBusyError, StoreError
from store.format.freshness_token import decode_freshness_token

# As many as a request can have appended.
TOKEN_COUNT_MAX = 1_024
WAITING_COUNT_MAX = 32
# The share of the caller's time for the wait; the rest is for the query.
WAIT_SHARE = 0.8
# A record is built some 15 ms after its append. After this longer wait the log is asked whether it has such a record.
FIRST_WAIT_SECONDS = 0.25
NEXT_WAIT_SECONDS = 1.0
# With less time left, another call would not return in time.
WAIT_SECONDS_MIN = 0.002
# The state of a builder that is switched off (services/following/follower_process.py).
BUILDER_OFF = "off"
# The pause before a service is asked again that had no place to wait.
PAUSE_SECONDS = 0.01


class Part(Enum):
    """The derived files that a query reads; the value is the service that builds them."""

    INDEX = "index"
    QUEUES = "consumequeue"


@dataclass(frozen=True, slots=True)
class Freshness:
    """The offsets that the tokens name, and the shards that did not reach them in time.

    Attributes:
        part: what the query looks into.
        wanted: where the newest record of a token starts (bytes of the log), by shard.
        late: shards that have not built it, with their progress where it is known.
    """

    part: Part
    wanted: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, BuildProgress | None] = field(default_factory=dict)

    def judge(
        self, outcomes: Sequence[ShardOutcome], completeness: Completeness
    ) -> tuple[tuple[ShardOutcome, ...], Completeness]:
        """The outcomes and the verdict after the query: PARTIAL when a shard is late."""
        judged = tuple(map(self._judge_one, outcomes))
        is_late = any(self._is_late(outcome) for outcome in outcomes)
        return judged, Completeness.PARTIAL if is_late else completeness

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
    """

    def __init__(
        self, waiting_count_max: int = WAITING_COUNT_MAX, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self._places = threading.BoundedSemaphore(waiting_count_max)
        self._waiting_count_max = waiting_count_max
        self._pause = pause
        # Not the threads of queries: waits of a second each would leave none for queries without tokens.
        self._fan_out = FanOut(waiting_count_max)

    def close(self) -> None:
        """End the threads; later waits fail."""
        self._fan_out.close()

    def wait(self, shards: Shards[object], tokens: Sequence[str], part: Part, deadline: Deadline) -> Freshness:
        """Wait until the shards have built what the tokens name, at most for four fifths of the remaining time.

        Raises:
            InvalidFreshnessTokenError: a token is malformed, or not of these shards' logs.
            ResourceBusyError: too many queries wait.
        """
        if not tokens:
            return Freshness(part)
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
            answers = self._fan_out.ask(asked, lambda shard: self._wait_for(shard, wanted, part, until))
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
        return Freshness(part, wanted, late)

    def _wait_for(self, shard: Shard[object], wanted: Mapping[str, int], part: Part, until: Deadline) -> BuildProgress:
        """The shard's progress once it is past what is wanted, or when the time is over."""
        offset = wanted[shard.broker_name]
        builder: KeyLocator | QueueLocator = shard.keys if part is Part.INDEX else shard.queues
        seconds_max = FIRST_WAIT_SECONDS
        while True:
            began = until.clock()
            seconds = min(seconds_max, (until.at_seconds - began) * WAIT_SHARE)
            progress = builder.progress(offset, max(seconds, 0.0), until)
            remaining = until.at_seconds - until.clock()
            if progress.next_offset > offset or remaining < WAIT_SECONDS_MIN:
                return progress
            if seconds_max < NEXT_WAIT_SECONDS:
                seconds_max = NEXT_WAIT_SECONDS
                if not _is_coming(shard, part, offset, until):
                    return progress
            if until.clock() - began < seconds / 2:
                self._pause(min(PAUSE_SECONDS, remaining))


def wanted_offsets(shards: Shards[object], tokens: Iterable[str]) -> dict[str, int]:
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


def _is_coming(shard: Shard[object], part: Part, offset: int, until: Deadline) -> bool:
    """Whether a wait can succeed: not for a builder that is switched off.

    InvalidFreshnessTokenError when the shard's log ends before the offset.
    """
    is_off = False
    for status in shard.services.statuses(until):
        is_off = is_off or (status.service == part.value and status.state == BUILDER_OFF)
        is_known = status.error is None and not status.catching_up
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
