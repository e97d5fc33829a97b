"""Finding shards while the gateway runs: a file that changes, or ordinals behind the last known one.

Neither removes a shard (directory.py says why). A file that cannot be read or parsed is reported in the log and changes
nothing: the known shards go on being asked.

    ordinals      0 1 2 | 3 4 5 6          count = 3: asked at each look are 3, 4, 5 and 6
                                           5 answers: 3 and 4 are known too, as shards that are down

A StatefulSet makes ordinals without gaps, so an ordinal that answers proves that all below it exist. It counts as a shard only
when its commitlog answers under the shard's name: a DNS zone that answers for every name does not add shards.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from gateway.shards.targets import ShardTargets, of_ordinals, parse_file
from store.errors import InvalidSettingError, StoreError, failure_fields

# Ordinals asked behind the last known one. More than one, so new shards are found although some before them are down.
ORDINAL_AHEAD_COUNT = 4
# The channel of a moved shard is closed after this time. No query or append takes longer; a longer call is a stream, which
# its caller opens anew.
RETIRED_SECONDS = 60.0

_log = structlog.get_logger("reput.gateway")


class ShardSource(Protocol):
    """A source of shards."""

    def look(self) -> Sequence[ShardTargets]:
        """All shards, or only the new ones; InvalidSettingError when the source cannot be read."""

    def kept(self, found: Sequence[ShardTargets]) -> None:
        """What `look` returned is known now; until this is called, `look` returns it again."""


class ShardKeeper(Protocol):
    """Keeps the shards that are found."""

    def keep(self, targets: Sequence[ShardTargets]) -> None:
        """Take shards, new ones and known ones. When it raises a StoreError nothing has changed."""


class ShardFile:
    """A file of shards, as a ConfigMap puts it there.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self) -> Sequence[ShardTargets]:
        """See ShardSource."""
        try:
            return parse_file(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidSettingError(
                f"settings of gateway: shards_file = {str(self._path)!r} cannot be used: {error}",
                name="shards_file",
                source=str(self._path),
            ) from error

    def kept(self, found: Sequence[ShardTargets]) -> None:
        """See ShardSource; each look returns the whole file."""


class ShardOrdinals:
    """Shards of a template.

    Args:
        template: the shard `{i}`, each replica by itself.
        count: ordinals known to exist, from 0 on.
        count_max: no ordinal at or above this is looked for.
        answers: whether a commitlog of the shard answers under the shard's name.
    """

    def __init__(
        self, template: Sequence[ShardTargets], count: int, count_max: int, answers: Callable[[ShardTargets], bool]
    ) -> None:
        self._template = template
        self._count = count
        self._count_max = count_max
        self._answers = answers

    def look(self) -> Sequence[ShardTargets]:
        """See ShardSource."""
        end = min(self._count + ORDINAL_AHEAD_COUNT, self._count_max)
        found_end = self._count
        for ordinal in range(self._count, end):
            if any(map(self._answers, of_ordinals(self._template, [ordinal]))):
                found_end = ordinal + 1
        return of_ordinals(self._template, range(self._count, found_end))

    def kept(self, found: Sequence[ShardTargets]) -> None:
        """See ShardSource."""
        self._count += len(found) // len(self._template)


class Discovery:
    """Looks for shards in a thread of its own, and closes the channels of moved ones.

    Args:
        poll_seconds: the pause between two looks.
        clock: seconds, rising.
    """

    def __init__(self, poll_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._stopped = threading.Event()
        self._retired: deque[tuple[float, Callable[[], None]]] = deque()
        self._problem = ""

    def start(self, source: ShardSource, keeper: ShardKeeper) -> None:
        """Look from now on until `stop`."""

        def run() -> None:
            while not self._stopped.wait(self._poll_seconds):
                self.look(source, keeper)

        threading.Thread(target=run, name="gateway-discovery", daemon=True).start()

    def stop(self) -> None:
        """Look no more, after the last call."""
        self._stopped.set()
        self._close_retired()

    def retire(self, close: Callable[[], None]) -> None:
        """Calls `close` after RETIRED_SECONDS or at the stop, when no call can be under way any more."""
        self._retired.append((self._clock() + RETIRED_SECONDS, close))
        if self._stopped.is_set():
            self._close_retired()

    def _close_retired(self) -> None:
        with contextlib.suppress(IndexError):  # all are closed
            while True:
                _, close = self._retired.popleft()
                try:
                    close()
                except Exception:
                    _log.exception("shards.not_closed")

    def look(self, source: ShardSource, keeper: ShardKeeper) -> None:
        """One look."""
        try:
            while self._retired and self._retired[0][0] <= self._clock():
                self._retired.popleft()[1]()
            found = source.look()
            keeper.keep(found)
            source.kept(found)
            self._problem = ""
        except StoreError as error:
            if self._problem != error.message:  # once, not at each look
                _log.error("shards.unreadable", **failure_fields(error))
            self._problem = error.message
        except Exception:
            _log.exception("shards.look_failed")  # the next look tries again
