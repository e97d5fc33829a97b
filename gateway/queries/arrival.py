"""Shards as one query sees them: an answer lacks what the log had when the query arrived, or it is complete.

    log       |=====================|======|        the builders follow it some 15 ms behind
    builder   |==================|                  an answer from here may lack what was just acknowledged
                                    └ end at arrival: built up to there, the answer is complete, whatever is appended since

A builder itself knows an older end of the log. So the progress in each answer gets the end at arrival before a query judges
it. The end is known without a call where the log's files show that nothing lies behind what the builder had in an earlier
answer. Otherwise the commitlog is asked, beside the query's own calls.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, Built
from gateway.ports.shards import Shards
from store.errors import ServiceUnavailableError, StoreError


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
