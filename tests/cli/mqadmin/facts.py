"""The flags of mqadmin's verbs, read from `help/VERB.txt`: what `mqadmin help VERB` of RocketMQ 5.5.0 printed."""

import re
from pathlib import Path
from typing import NamedTuple

HELP = Path(__file__).parent / "help"
VERBS = sorted(path.stem for path in HELP.glob("*.txt"))
_ROW = re.compile(r" (?:-(\w),|   )--(\w+)( <arg>)?  ")


class Flag(NamedTuple):
    """A flag of a verb; `short` is empty when it has none."""

    verb: str
    short: str
    long: str
    has_argument: bool
    is_required: bool

    @property
    def names(self) -> set[str]:
        """With their hyphens."""
        return {f"--{self.long}", *([f"-{self.short}"] if self.short else [])}


def flags_of(text: str) -> list[Flag]:
    """The flags of a page of help, in its order."""
    usage, _, rows = text.partition("\n -")
    verb, line = " ".join(usage.split()).removeprefix("usage: mqadmin ").split(" ", 1)
    line = re.sub(r"\[[^]]*\]", "", line)  # what is left is required; of `-b <arg> | -c <arg>` one
    found = [match.groups() for each in f" -{rows}".splitlines() if (match := _ROW.match(each + "  "))]
    return [
        Flag(verb, short or "", long, bool(argument), f"-{short} " in f"{line} ") for short, long, argument in found
    ]


def all_flags() -> list[Flag]:
    """Those of all verbs."""
    return [flag for verb in VERBS for flag in flags_of((HELP / f"{verb}.txt").read_text(encoding="utf-8"))]
