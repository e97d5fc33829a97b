"""Whether the store of this installation takes writes. On one that is only read, no page shows an action.

Read-only, following (`--follow`) and mirroring (`--mirror`) shards refuse every change. The state is asked of the services,
whatever the caller may see, and kept for a few seconds, because each page needs it.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from console.calls import CallContext
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import StoreError

KEPT_SECONDS = 5.0
ASK_SECONDS_MAX = 1.0
# The states of a commit log that takes no writes, by their words.
READ_ONLY_STATES = frozenset({"read-only", "following", "mirroring"})


class WriteState:
    """Asks for the state and keeps it; thread-safe.

    Args:
        get_status: the gateway's GetStatus, without a guard.
        clock: monotonic seconds.
    """

    def __init__(self, get_status: Callable[[Any, Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._get_status = get_status
        self._clock = clock
        self._lock = threading.Lock()
        self._takes_writes = True
        self._until_seconds = float("-inf")

    def takes_writes(self) -> bool:
        """False when no shard takes writes. One that does not answer counts as one that does: it says what it refuses."""
        with self._lock:
            if self._clock() < self._until_seconds:
                return self._takes_writes
            try:
                answer = self._get_status(pb.GetStatusRequest(), CallContext(ASK_SECONDS_MAX))
            except StoreError:  # as it was before
                pass
            else:
                states = [each.state for each in answer.services if each.service == "commitlog"]
                self._takes_writes = not states or any(state not in READ_ONLY_STATES for state in states)
            self._until_seconds = self._clock() + KEPT_SECONDS
            return self._takes_writes
