"""What a leader knows of one follower: how far it is durable, when it had everything, and which heartbeats it has answered."""

from collections import deque
from dataclasses import dataclass, field

from store.errors import InvalidArgumentError

BEAT_SECONDS = 0.05  # messages that are sent within this time have one heartbeat
BEAT_COUNT_MAX = 4096  # unanswered ones; the oldest are forgotten
NOTHING = -1


@dataclass(slots=True)
class ReplicaProgress:
    """One follower; its leader holds a lock around every use. Offsets are bytes of the log, times seconds of a rising clock.

    Attributes:
        caught_up_at: the last time at which it had all that the leader had then.
        away_since: since when it is not connected; None while it is.
        sent_offset: everything before it was sent on the present stream.
        durable_offset: everything before it is on its disk, as it says; NOTHING until it has said so.
        settled_offset: the greatest end of a request up to there that it has reported.
        store_id: of the store that reports on the present stream; empty: it has not said.
        has_reported: whether it has on the present stream; before that nobody knows whether it takes what the leader has.
    """

    caught_up_at: float
    away_since: float | None
    sent_offset: int = NOTHING
    durable_offset: int = NOTHING
    settled_offset: int = NOTHING
    has_reported: bool = False
    store_id: str = ""
    _ends: deque[int] = field(default_factory=deque)  # of requests that were sent and are not durable there
    _beats: deque[tuple[int, float]] = field(default_factory=deque)  # unanswered
    _marks: deque[tuple[float, int]] = field(default_factory=deque)  # what the leader had at a time
    _last_beat: tuple[int, float] = (0, float("-inf"))

    def on_new_stream(self, offset: int, store_id: str = "") -> "ReplicaProgress":
        """The progress on a new stream; what an old one still notes does not count.

        Args:
            offset: the follower says that it has everything before it, and that both logs agree up to there (bytes).
            store_id: of its store.
        """
        return ReplicaProgress(
            self.caught_up_at,
            None,
            sent_offset=offset,
            durable_offset=offset,
            settled_offset=min(self.settled_offset, offset),
            store_id=store_id,
            _ends=deque([offset]),
        )

    def note_sent(self, end_offset: int, settle_offset: int) -> None:
        """Bytes up to an end are about to be sent, with the end of a request or 0."""
        self.sent_offset = end_offset
        if settle_offset:
            self._ends.append(settle_offset)

    def beat(self, now: float, written_offset: int) -> int:
        """The heartbeat of a response that is sent now, when the leader's log is written up to an offset."""
        number, sent_at = self._last_beat
        if now - sent_at >= BEAT_SECONDS:
            self._last_beat = number + 1, now
            self._beats.append(self._last_beat)
            self._marks.append((now, written_offset))
            if len(self._beats) > BEAT_COUNT_MAX:
                self._beats.popleft()
            if len(self._marks) > BEAT_COUNT_MAX:
                self._marks.popleft()
        return self._last_beat[0]

    def report(self, durable_offset: int, answered_heartbeat: int) -> float | None:
        """Takes a report.

        Returns:
            When the newest heartbeat that it answers was sent; None when it answers none anew.

        Raises:
            InvalidArgumentError: the follower says more than it can have, or less than before.
        """
        if not self.durable_offset <= durable_offset <= self.sent_offset:
            raise InvalidArgumentError(
                f"durable_offset is {durable_offset}: this follower was at {self.durable_offset} and was sent the log up to "
                f"{self.sent_offset}",
                field="durable_offset",
            )
        if answered_heartbeat > self._last_beat[0]:
            raise InvalidArgumentError(
                f"answered_heartbeat is {answered_heartbeat}, and {self._last_beat[0]} was the last one",
                field="answered_heartbeat",
            )
        self.has_reported = True
        self.durable_offset = durable_offset
        while self._ends and self._ends[0] <= durable_offset:
            self.settled_offset = self._ends.popleft()
        while self._marks and self._marks[0][1] <= durable_offset:
            self.caught_up_at = self._marks.popleft()[0]
        promised_at = None
        while self._beats and self._beats[0][0] <= answered_heartbeat:
            promised_at = self._beats.popleft()[1]
        return promised_at
