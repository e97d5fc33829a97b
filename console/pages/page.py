"""The result of a page's function: a template with its values, and the same as JSON."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


@dataclass(frozen=True, slots=True)
class Page:
    """An answer to a browser.

    Attributes:
        template: file name.
        values: the template's values.
        answer: the page as JSON; int64 as text and names as in protobuf's JSON mapping.
        status_code: the HTTP status.
    """

    template: str
    values: Mapping[str, Any]
    answer: Mapping[str, Any]
    status_code: int = 200


@dataclass(slots=True)
class Stopwatch:
    """Measures the time of the gateway calls; `clock` in seconds."""

    clock: Callable[[], float] = time.perf_counter
    _begin_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin_seconds = self.clock()

    def millis(self) -> float:
        """Milliseconds so far, rounded to a tenth."""
        return round((self.clock() - self._begin_seconds) * 1000, 1)


def to_json(message: Message) -> dict[str, Any]:
    """A message in protobuf's JSON mapping."""
    answer: dict[str, Any] = MessageToDict(message)
    return answer
