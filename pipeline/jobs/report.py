"""What a job did, as one JSON document."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class JobReport:
    """Counts and places that a job leaves behind.

    Attributes:
        job: the name of the job.
        is_dry_run: nothing was written.
        started_at_millis: since 1970 UTC.
        seconds: how long it took.
        counts: what was read, written, found; names end in their unit (`_count`, `_bytes`).
        outputs: what was written where, by kind.
        findings: what is wrong, a row each; empty where a job does not judge.
        notes: what a person should know.
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
    def begin(cls, job: str, *, is_dry_run: bool = False, clock: Callable[[], float] = time.time) -> "JobReport":
        """The report of a job that starts now."""
        return cls(job, is_dry_run, started_at_millis=int(clock() * 1000))

    def end(self, clock: Callable[[], float] = time.time) -> "JobReport":
        """The job has ended."""
        self.seconds = round(clock() - self.started_at_millis / 1000, 3)
        return self

    def to_json(self) -> str:
        """One indented document."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)
