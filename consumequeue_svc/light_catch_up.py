"""LightCatchUp: reads for the light queues the part of the log that was applied without them, once.

Theory of operation: a release that builds no light queues (LMQ), as 0.2.0, leaves a checkpoint of the other queues. A start
goes on where those are, and the light queues begin at the log's first record. A thread beside the builder reads it for them.
The builder's thread writes their units (`take`), each second or when there are many, until they are as far as the others. Then
the thread ends, and the builder writes them with the others. Calls for light queues are refused meanwhile; nothing else waits.
A kill costs what no checkpoint has.

The thread reads for half of the time at most. What retention removes meanwhile is left out.
"""

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from consumequeue_svc.light_queues import UP_TO_DATE, LightQueues
from services.following.follower_progress import FollowerProgress
from store.derive.queue_placement import LightUnit
from store.derive.read_log import ReadLog
from store.errors import StoreError

# Units that are handed over at once, and those of one batch of the log more: the builder writes them in 0.2 s.
UNIT_COUNT_MAX = 1 << 14
HAND_OVER_SECONDS = 1.0
# Pause after a failure, as of a FileChecker.
RETRY_SECONDS = 5.0
CLOSE_SECONDS_MAX = 5.0

# Takes the units of the records from `light.next_offset` to an offset (both in bytes).
Take = Callable[[Sequence[LightUnit], int], None]

_log = structlog.get_logger("reput.consumequeue")


class LightCatchUp:
    """See the top of this file.

    Args:
        light: the light queues.
        progress: of the builder.
        read_log: see ReadLog.
        take: writes units; called by the builder's thread.
        hand_over: has the builder's thread do something.
        clock: seconds, rising.
    """

    def __init__(
        self,
        light: LightQueues,
        progress: FollowerProgress,
        read_log: ReadLog,
        take: Take,
        hand_over: Callable[[Callable[[], bool]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._light = light
        self._progress = progress
        self._read_log = read_log
        self._take = take
        self._hand_over = hand_over
        self._clock = clock
        self._stopping = threading.Event()
        self._woken = threading.Event()  # units were taken, or it is to stop
        self._thread = threading.Thread(target=self._run, name="light-catch-up", daemon=True)

    def start(self) -> None:
        """Read from now on."""
        _log.info(
            "light.catching_up",
            next_offset=self._light.next_offset,
            end_offset=self._progress.next_offset,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop; nothing is handed over any more."""
        self._stopping.set()
        self._woken.set()
        self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._read()
            except StoreError as error:
                if not self._stopping.is_set():
                    _log.warning("light.catch_up_failed", next_offset=self._light.next_offset, error=error.message)
                    self._stopping.wait(RETRY_SECONDS)
            except Exception:
                # The thread must not end here: light queues would be refused until the next start.
                _log.exception("light.catch_up_failed")
                self._stopping.wait(RETRY_SECONDS)
        if not self._stopping.is_set():
            _log.info("light.caught_up", next_offset=self._progress.next_offset)

    @property
    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._light.next_offset == UP_TO_DATE

    def _read(self) -> None:
        """Reads on, until it is over.

        Raises:
            StoreError: the log cannot be read now, or no longer from there on.
        """
        units: list[LightUnit] = []
        with self._read_log(max(self._light.next_offset, self._progress.log_first_offset)) as batches:
            began = handed_over_at = self._clock()
            for batch in batches:
                if batch.columns is not None:
                    units += batch.columns.light_units
                now = self._clock()
                if (
                    len(units) >= UNIT_COUNT_MAX
                    or now - handed_over_at >= HAND_OVER_SECONDS
                    or batch.next_offset >= self._progress.next_offset
                ):
                    self._give(units, batch.next_offset)
                    units = []
                    handed_over_at = self._clock()
                self._stopping.wait(now - began)
                if self._is_over:
                    return
                began = self._clock()

    def _give(self, units: Sequence[LightUnit], next_offset: int) -> None:
        """Has the builder take units, and waits for it."""
        self._woken.clear()

        def work() -> bool:
            self._take(units, next_offset)
            self._woken.set()
            return True

        if not self._stopping.is_set():
            self._hand_over(work)
            self._woken.wait()
