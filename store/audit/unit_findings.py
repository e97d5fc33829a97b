"""The wrong units of one queue, collected until the end of an audit."""

from dataclasses import dataclass, field

WRONG_PER_QUEUE_MAX = 100  # findings of one queue; the others are only counted


@dataclass(slots=True)
class WrongUnits:
    """Units of one kind at consecutive positions.

    Attributes:
        code: see `codes.py`.
        begin: position of the first.
        count: how many.
        what: text about the first.
        commit_log_offset: of the first, or of its record (bytes); None if it has none.
    """

    code: str
    begin: int
    count: int
    what: str
    commit_log_offset: int | None


@dataclass(slots=True)
class UnitFindings:
    """What is wrong with the units of one queue.

    Attributes:
        wrong: at most WRONG_PER_QUEUE_MAX, in the order found.
        left_out_count: wrong units beyond these.
        of_lost_count: units that point into a damaged part of the log.
    """

    wrong: list[WrongUnits] = field(default_factory=list)
    left_out_count: int = 0
    of_lost_count: int = 0

    def add(self, code: str, number: int, what: str, commit_log_offset: int | None = None) -> None:
        """Adds the unit at position `number`; see WrongUnits."""
        last = self.wrong[-1] if self.wrong else None
        if last is not None and last.code == code and last.begin + last.count == number:
            last.count += 1
        elif len(self.wrong) < WRONG_PER_QUEUE_MAX:
            self.wrong.append(WrongUnits(code, number, 1, what, commit_log_offset))
        else:
            self.left_out_count += 1
