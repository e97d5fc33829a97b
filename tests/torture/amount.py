"""How much of each random or exhaustive test runs.

sample   `make test ROOM=torture`: a fixed, small piece of everything
change   `make torture`: for each change
full     `make torture FULL=1`: for a release; TORTURE_COUNT replaces the numbers that tests name for it
"""

import os

LEVELS = ("sample", "change", "full")


def level() -> str:
    """The level asked for by TORTURE_LEVEL; `sample` when it is not set."""
    name = os.environ.get("TORTURE_LEVEL", "sample")
    if name not in LEVELS:
        raise ValueError(f"TORTURE_LEVEL is {name!r}: {', '.join(LEVELS)} are known")
    return name


def amount(*, sample: int, change: int, full: int) -> int:
    """The count for this run; TORTURE_COUNT rules at `full`."""
    if level() == "full":
        return int(os.environ.get("TORTURE_COUNT") or full)
    return change if level() == "change" else sample
