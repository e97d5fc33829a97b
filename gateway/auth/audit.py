"""The audit log: client, method, topic and outcome of calls; events `audit.*` among the other log lines.

    audit.denied      a refused call: at most DENIED_COUNT_MAX lines a second; `suppressed_count` of the next line counts
                      the others
                      An id of a foreign message is answered as an absent one; its line follows within WINDOW_SECONDS, so
                      that writing it takes no time of the answer
    audit.append      appends of a client to a topic: the first at once, the others of the next WINDOW_SECONDS together in
                      one line with `call_count` and `message_count`
    audit.admin       a call that needs the role admin

They are written at every log level. The number of lines depends on clients and topics, not on messages: a line for each
append would be a second log as long as the first. Bodies, keys and properties of messages and credentials are never given
to this module.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

DENIED_COUNT_MAX = 100
# Lines for foreign ids that wait to be written, at most 300 KiB.
HIDDEN_COUNT_MAX = 500
WINDOW_SECONDS = 10.0
# Counters of a window, each of texts within TEXT_CHARACTERS_MAX: at most 3 MiB. Further topics are counted together as OTHERS,
# and at twice as many counters the clients are, too.
COUNTER_COUNT_MAX = 1_000
OTHERS = "(others)"
TEXT_CHARACTERS_MAX = 256


class Line(Protocol):
    """Writes one line."""

    def __call__(self, event: str, **fields: Any) -> object:
        """As a logger's `info`."""


@dataclass(slots=True)
class _Counter:
    call_count: int = 0
    message_count: int = 0


class Audit:
    """Writes the lines; thread-safe. It is fast, because every append passes it.

    Args:
        write: writes a line.
        clock: seconds, rising.
    """

    def __init__(self, write: Line, clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._lock = threading.Lock()
        self._appends: dict[tuple[str, str, str, str], _Counter] = {}
        self._window_end_seconds = clock() + WINDOW_SECONDS
        self._denied_second = clock()
        self._denied_count = 0
        self._suppressed_count = 0
        self._hidden: deque[tuple[str, str, str]] = deque(maxlen=HIDDEN_COUNT_MAX)

    def hidden(self, client: str, peer: str, method: str) -> None:
        """Records a call for a message that its caller may not see; the newest HIDDEN_COUNT_MAX of a window."""
        self._hidden.append((client[:TEXT_CHARACTERS_MAX], peer, method))

    def denied(self, client: str, peer: str, method: str, topic: str, outcome: str) -> None:
        """Records a refused call."""
        with self._lock:
            now = self._clock()
            if now - self._denied_second >= 1.0:
                self._denied_second, self._denied_count = now, 0
            self._denied_count += 1
            if self._denied_count > DENIED_COUNT_MAX:
                self._suppressed_count += 1
                return
            suppressed_count, self._suppressed_count = self._suppressed_count, 0
        fields: dict[str, Any] = {"suppressed_count": suppressed_count} if suppressed_count else {}
        self._write(
            "audit.denied",
            client=_text(client),
            peer=_text(peer),
            method=_text(method),
            topic=_text(topic),
            outcome=outcome,
            **fields,
        )

    def admin(self, client: str, peer: str, method: str, topic: str = "", group: str = "", user: str = "") -> None:
        """Records an allowed call that needs the role admin, with the topic, the consumer group and the user that it names."""
        named = {name: _text(value) for name, value in (("topic", topic), ("group", group), ("user", user)) if value}
        self._write("audit.admin", client=_text(client), peer=_text(peer), method=method, outcome="ALLOWED", **named)

    def appended(self, client: str, method: str, message_count_by_topic: dict[str, int], outcome: str) -> None:
        """Records the end of an append."""
        first: list[tuple[str, int]] = []
        client = client[:TEXT_CHARACTERS_MAX]
        with self._lock:
            due = self._take_due()
            for named, message_count in message_count_by_topic.items():
                topic = named[:TEXT_CHARACTERS_MAX]
                counter = self._appends.get((client, method, topic, outcome))
                if counter is None:
                    if len(self._appends) < COUNTER_COUNT_MAX:
                        self._appends[client, method, topic, outcome] = _Counter()
                        first.append((topic, message_count))
                        continue
                    counter = self._others(client, method, outcome)
                counter.call_count += 1
                counter.message_count += message_count
        self._write_counted(due)
        for topic, message_count in first:
            self._write_append(client, method, topic, outcome, 1, message_count)

    def _others(self, client: str, method: str, outcome: str) -> _Counter:
        key = client, method, OTHERS, outcome
        if len(self._appends) >= 2 * COUNTER_COUNT_MAX and key not in self._appends:
            key = OTHERS, method, OTHERS, outcome
        return self._appends.setdefault(key, _Counter())

    def flush(self) -> None:
        """Write what was counted in an ended window; called regularly, so a line does not wait for the next append."""
        self._write_hidden()
        with self._lock:
            due = self._take_due()
        self._write_counted(due)

    def close(self) -> None:
        """Write all that was counted."""
        self._write_hidden()
        with self._lock:
            due, self._appends = self._appends, {}
        self._write_counted(due)

    def _write_hidden(self) -> None:
        while self._hidden:
            self.denied(*self._hidden.popleft(), "", "PERMISSION_DENIED")

    def _take_due(self) -> dict[tuple[str, str, str, str], _Counter]:
        if self._clock() < self._window_end_seconds:
            return {}
        self._window_end_seconds = self._clock() + WINDOW_SECONDS
        due, self._appends = self._appends, {}
        return due

    def _write_counted(self, due: dict[tuple[str, str, str, str], _Counter]) -> None:
        for (client, method, topic, outcome), counter in due.items():
            if counter.call_count:
                self._write_append(client, method, topic, outcome, counter.call_count, counter.message_count)

    def _write_append(
        self, client: str, method: str, topic: str, outcome: str, call_count: int, message_count: int
    ) -> None:
        self._write(
            "audit.append",
            client=_text(client),
            method=method,
            topic=_text(topic),
            outcome=outcome,
            call_count=call_count,
            message_count=message_count,
        )


def _text(text: str) -> str:
    """A caller's text, cut and without control characters, so that it cannot forge log lines."""
    clipped = text[:TEXT_CHARACTERS_MAX]
    return clipped if clipped.isprintable() else "".join(each if each.isprintable() else "?" for each in clipped)
