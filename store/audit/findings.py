"""Findings: what an audit has found, in bounded memory.

All findings are counted; of each code only the first few are kept in full.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from store.audit.codes import CODES, Kind, Severity

KEPT_PER_CODE_MAX = 200  # more of one kind do not help a reader, and a badly damaged store has millions


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        code: a name of `codes.CODES`.
        severity: how bad it is here.
        file: the path inside the root.
        byte: position in the file.
        commit_log_offset: its position in the log; None when it has none.
        what: text: what is wrong.
        what_to_do: text; empty if nothing is to be done.
        count: how many of its kind are side by side there (units, entries, records).
    """

    code: str
    severity: Severity
    file: str
    byte: int
    commit_log_offset: int | None
    what: str
    what_to_do: str
    count: int = 1


class Findings:
    """Collects findings of one root.

    Args:
        root: paths in findings are relative to it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: list[Finding] = []
        self._kept_of: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.finding_counts: Counter[str] = Counter()
        self._severities: Counter[Severity] = Counter()
        self._kinds: Counter[Kind] = Counter()  # counts errors and warnings

    def add(
        self,
        code: str,
        file: Path | str,
        byte: int,
        what: str,
        *,
        commit_log_offset: int | None = None,
        severity: Severity | None = None,
        count: int = 1,
    ) -> None:
        """Adds a finding; it may stand for `count` of its kind."""
        known = CODES[code]
        weight = severity or known.severity
        self.counts[code] += count
        self.finding_counts[code] += 1
        self._severities[weight] += 1
        if weight is not Severity.INFO:
            self._kinds[known.kind] += 1
        if self._kept_of[code] >= KEPT_PER_CODE_MAX:
            return
        self._kept_of[code] += 1
        path = Path(file)
        name = str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)
        # The name of a foreign file need not be UTF-8, and must not end the report.
        name = name.encode(errors="backslashreplace").decode()
        self._kept.append(Finding(code, weight, name, byte, commit_log_offset, what, known.what_to_do, count))

    @property
    def kept(self) -> list[Finding]:
        """The findings kept in full, worst first, then in the order found."""
        order = list(Severity)
        return sorted(self._kept, key=lambda finding: order.index(finding.severity))

    @property
    def left_out_count(self) -> int:
        """Number of findings that are counted but not kept."""
        return sum(self.finding_counts.values()) - len(self._kept)

    def severity_count(self, severity: Severity) -> int:
        """Number of findings with that severity."""
        return self._severities[severity]

    @property
    def is_clean(self) -> bool:
        """Whether there is no error and no warning."""
        return not (self._severities[Severity.ERROR] or self._severities[Severity.WARNING])

    def has(self, codes: Iterable[str]) -> bool:
        """Whether any of these was found."""
        return any(self.finding_counts[code] for code in codes)

    def concerns(self, kind: Kind) -> bool:
        """Whether an error or warning of that kind was found."""
        return self._kinds[kind] > 0
