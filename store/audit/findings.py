"""Findings: what an audit has found, in bounded memory.

All findings are counted; of each code only the first few are kept in full.

Code: each kind of finding with its usual severity and what to do about it.

Severities: an `error` is damage or disagreement that makes a service fail or answer wrongly; a `warning` is what a crash
leaves and the next start repairs; an `info` is harmless.

Kinds say how it is repaired: `log` by `--repair-log`, `derived` by `--repair`, `other` by hand.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Repair(StrEnum):
    """What a finding is about: the log, something derived from it, or neither."""

    LOG = "log"
    DERIVED = "derived"
    OTHER = "other"


class Code(NamedTuple):
    """A kind of finding; `what_to_do` is one sentence, empty for nothing."""

    name: str
    severity: Severity
    kind: Repair
    what_to_do: str


_CUT = "`reput fsck STORE --repair-log` cuts the log there and keeps the bytes that it cuts in reput/fsck/"
_BRING_BACK = "bring the file back from a copy, or let `reput fsck STORE --repair-log` cut the log there"
_REBUILD = "`reput fsck STORE --repair` builds it again from the log"
_CATCHES_UP = "the service continues from its checkpoint at its next start"
_COMES_BACK = "change nothing of these groups meanwhile, and upgrade before retention has passed that byte; later,"
_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

_TABLE = (
    # The log.
    Code("LOG_TORN_TAIL", _W, Repair.LOG, f"the next start cuts it; {_CUT}"),
    Code("LOG_STALE_BYTES", _W, Repair.LOG, f"the next start zeroes them; {_CUT}"),
    Code("LOG_DAMAGED", _E, Repair.LOG, _BRING_BACK),
    Code("LOG_HOLE", _E, Repair.LOG, _BRING_BACK),
    Code("LOG_SHORTER_THAN_FLUSHED", _E, Repair.LOG, _BRING_BACK),
    Code("LOG_FILE_MISSING", _E, Repair.LOG, _BRING_BACK),
    Code("LOG_FILE_SIZE", _E, Repair.LOG, _BRING_BACK),
    Code("LOG_FILE_UNFINISHED", _W, Repair.LOG, f"the next start completes it; {_CUT}"),
    Code("LOG_FILE_NAME", _E, Repair.LOG, "give the file its right name back, or move it out of commitlog/"),
    Code("LOG_FOREIGN_FILE", _I, Repair.OTHER, "move it out of commitlog/ if it is not needed there"),
    Code("LOG_QUEUE_OFFSET_GAP", _W, Repair.OTHER, "RocketMQ skips places of messages that it refuses; else one is lost"),
    Code("LOG_QUEUE_OFFSET_TAKEN", _E, Repair.OTHER, "find the later message by id or key: its queue does not show it"),
    Code("LOG_QUEUE_RESTARTED", _I, Repair.OTHER, ""),
    Code("LOG_RECORD_UNGUARDED", _I, Repair.OTHER, "only its body has a CRC: RocketMQ writes no __CRC32# by default"),
    Code("LOG_UNIQUE_KEY_REPEATED", _I, Repair.OTHER, ""),
    Code("LOG_TOPIC_REFUSED", _E, Repair.OTHER, "no queue can be made for it; RocketMQ does not write such records"),
    # What the store uses of RocketMQ, see docs/features.md.
    Code("STORE_FEATURE", _I, Repair.OTHER, "docs/features.md says what Reput does about it"),
    Code("LOG_TIME_AHEAD", _W, Repair.OTHER, "a clock was wrong: queries by time and expiry take these records for new ones"),
    # The queues.
    Code("QUEUE_MISSING_UNITS", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_BEHIND_LOG", _I, Repair.DERIVED, _CATCHES_UP),
    Code("QUEUE_SURPLUS_UNITS", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_UNIT_WRONG", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_UNIT_ORDER", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_FILE_SIZE", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_FILE_NAME", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_FILE_MISSING", _E, Repair.DERIVED, _REBUILD),
    Code("QUEUE_FOREIGN_FILE", _I, Repair.OTHER, "move it out of consumequeue/ if it is not needed there"),
    Code("QUEUE_LEFT_ALONE", _I, Repair.OTHER, "nothing: only a broker builds and reads it, and Reput changes nothing of it"),
    Code("QUEUE_UNITS_OF_DAMAGED_RECORDS", _I, Repair.OTHER, "they are removed when the log is cut"),
    Code("LIGHT_UNIT_WRONG", _E, Repair.DERIVED, _REBUILD),
    Code("LIGHT_UNIT_MISSING", _E, Repair.DERIVED, _REBUILD),
    # The indexes.
    Code("INDEX_MISSING_KEYS", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_BEHIND_LOG", _I, Repair.DERIVED, _CATCHES_UP),
    Code("INDEX_SURPLUS_ENTRIES", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_ENTRY_WRONG", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_CYCLE", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_CHAIN_WRONG", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_SLOT_WRONG", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_HEADER_WRONG", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_UNREADABLE", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_FILE_SIZE", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_FILE_NAME", _E, Repair.DERIVED, _REBUILD),
    Code("INDEX_UNFLUSHED", _I, Repair.OTHER, _CATCHES_UP),
    Code("INDEX_FOREIGN_FILE", _I, Repair.OTHER, "move it out of index/ if it is not needed there"),
    Code("INDEX_KEYS_TWICE", _I, Repair.OTHER, "RocketMQ's re-dispatch writes the newest record's keys once more; harmless"),
    Code("INDEX_ENTRIES_OF_TAGS", _I, Repair.OTHER, "RocketMQ 5.5 writes them and searches by them; Reput keeps them"),
    Code("INDEX_TAGS_FROM", _I, Repair.DERIVED, "`reput fsck STORE --repair` makes the older ones; queries by tags need them"),
    Code("INDEX_ENTRIES_OF_DAMAGED_RECORDS", _I, Repair.OTHER, "they are removed when the log is cut"),
    # Checkpoints and other state.
    Code("CHECKPOINT_AHEAD", _E, Repair.DERIVED, "`reput fsck STORE --repair` sets it back"),
    Code("CHECKPOINT_DAMAGED", _E, Repair.DERIVED, "`reput fsck STORE --repair` writes it anew"),
    Code("CHECKPOINT_MISSING", _I, Repair.OTHER, "the commit log writes it at its next stop"),
    Code("STATE_DAMAGED", _W, Repair.DERIVED, "the service ignores it; `reput fsck STORE --repair` moves it aside"),
    Code("STATE_AHEAD", _E, Repair.DERIVED, "`reput fsck STORE --repair` moves it aside"),
    Code("STATE_WRONG", _E, Repair.DERIVED, "`reput fsck STORE --repair` moves it aside"),
    Code("TOPICS_DAMAGED", _E, Repair.OTHER, "bring config/topics.json back from a copy (RocketMQ keeps topics.json.bak)"),
    Code("CONFIG_DAMAGED", _E, Repair.OTHER, "compare what is used with a copy; the next write keeps the damaged file aside"),
    Code("CONFIG_ROW_UNREADABLE", _E, Repair.OTHER, "repair the row by hand while the store is stopped"),
    Code("CONFIG_KEPT_ASIDE", _I, Repair.OTHER, "look at the damaged file and remove it when it is not needed"),
    Code("TOPIC_ROW_UNREADABLE", _E, Repair.OTHER, "repair the row by hand while the store is stopped, or delete the topic"),
    Code("TOPICS_MISSING", _I, Repair.OTHER, "create it before a RocketMQ broker serves this store, unless it was deleted"),
    Code("ABORT_FOUND", _I, Repair.OTHER, "the store was not stopped cleanly; the next start recovers it"),
    # What an earlier release does not know (`reput fsck STORE --release`; docs/upgrade.md).
    Code("RELEASE_NOT_READ", _W, Repair.OTHER, "run `reput fsck STORE` first, and ask again: what else it has is not known"),
    Code("RELEASE_LITE_GROUPS", _W, Repair.OTHER, f"they wait while it runs; {_COMES_BACK} bind them again"),
    Code("RELEASE_REQUEST_MODES", _W, Repair.OTHER, f"it does not use them; {_COMES_BACK} set them again"),
    Code("RELEASE_PRIORITY_FACTORS", _W, Repair.OTHER, f"it does not use them; {_COMES_BACK} set them again"),
    Code("RELEASE_TOPIC_TYPES", _W, Repair.OTHER, "it refuses sends of these types: stop their producers, or let them wait"),
    Code("RELEASE_LIGHT_QUEUES", _W, Repair.OTHER, "it serves none, and what is sent to them while it runs is in none later"),
    Code("RELEASE_TOPICS_MADE_AGAIN", _W, Repair.OTHER, "groups that begin there while it runs get messages of before, too"),
    Code("RELEASE_INDEX_TAGS", _I, Repair.OTHER, "it writes none: run `reput fsck STORE --repair` after the next upgrade"),
)  # fmt: skip

CODES = {code.name: code for code in _TABLE}


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
        self._kinds: Counter[Repair] = Counter()  # counts errors and warnings

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

    def concerns(self, kind: Repair) -> bool:
        """Whether an error or warning of that kind was found."""
        return self._kinds[kind] > 0
