"""Reach: how much a replica that follows may lack of what its shard has confirmed.

    follower   report 7 ─────────┐                       ┌── heard_report 7, confirm offset C
    leader                       └── may still confirm, ─┘   nobody else can lead
                                     its confirm offset is C

Everything that any leader confirmed before report 7 was sent lies before C. So a follower that shows everything before C lacks
at most what was confirmed since it sent that report. Only its own clock counts; the time on the network is on the safe side.
"""

import threading
from collections import deque
from collections.abc import Callable

# Of each kind: fewer make the answer older, never wrong. What was told within STEP_SECONDS is kept once.
KEPT_COUNT_MAX = 256
STEP_SECONDS = 0.02


class Reach:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising; also while the machine sleeps, because others confirm meanwhile.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Reports of the present stream that are not heard yet: number, and when it was sent.
        self._sent: deque[tuple[int, float]] = deque(maxlen=KEPT_COUNT_MAX)
        # Confirm offsets, and since when everything confirmed lies before them; rising.
        self._told: list[tuple[int, float]] = []
        self._leader_confirm = 0

    @property
    def leader_confirm_offset(self) -> int:
        """The greatest confirm offset that a leader has told (bytes)."""
        return self._leader_confirm

    def begin_stream(self) -> None:
        """The numbers of reports begin anew."""
        with self._lock:
            self._sent.clear()

    def note_sent(self, number: int) -> None:
        """A report is sent now."""
        with self._lock:
            self._sent.append((number, self._clock()))

    def note_told(self, confirm_offset: int, heard_report: int) -> None:
        """A leader has told its confirm offset (bytes), read after it had heard a report; 0: none, or it may not lead."""
        with self._lock:
            self._leader_confirm = max(self._leader_confirm, confirm_offset)
            sent_at = None
            while self._sent and self._sent[0][0] <= heard_report:
                number, at = self._sent.popleft()
                sent_at = at if number == heard_report else None
            if sent_at is None:
                return
            while self._told and self._told[-1][0] >= confirm_offset:
                self._told.pop()  # the same or a smaller offset has all since later
            if self._told and sent_at < self._told[-1][1] + STEP_SECONDS:
                return
            self._told.append((confirm_offset, sent_at))
            if len(self._told) > KEPT_COUNT_MAX:
                del self._told[1:-1:2]  # one that copies a long log keeps its oldest and its newest

    def staleness_seconds(self, shown_offset: int) -> float | None:
        """Everything that was confirmed longer ago lies before an offset up to which is shown (bytes); None: nobody knows."""
        with self._lock:
            at = next((at for offset, at in reversed(self._told) if offset <= shown_offset), None)
            return None if at is None else max(0.0, self._clock() - at)
