"""The report of a job, as one JSON document."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass
class JobReport:
    """What a job counted, wrote and found.

    Attributes:
        job: the name of the job.
        is_dry_run: the job wrote nothing.
        started_at_millis: milliseconds since 1970 UTC.
        seconds: how long it took.
        counts: amounts read, written and found; names end in their unit (`_count`, `_bytes`).
        outputs: paths of what was written, by kind.
        findings: what is wrong, one row each; empty for jobs that do not check.
        notes: sentences for the reader.
    """

    job: str
    is_dry_run: bool = False
    started_at_millis: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, job: str, *, is_dry_run: bool = False, clock: Callable[[], float] = time.time) -> Self:
        """The report of a job that starts now."""
        return cls(job, is_dry_run, started_at_millis=int(clock() * 1000))

    def end(self, clock: Callable[[], float] = time.time) -> Self:
        """The same report, with the time that the job took."""
        self.seconds = round(clock() - self.started_at_millis / 1000, 3)
        return self

    def to_json(self) -> str:
        """One indented document."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)
