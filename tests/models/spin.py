"""Spin (Debian's package spin): every behaviour of a model within its bounds, as a program that gcc compiles."""

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

MODELS = Path(__file__).parent
MISSING = "needs spin (Debian's package spin) and gcc"
IS_THERE = shutil.which("spin") is not None and shutil.which("gcc") is not None
SECONDS_MAX = 300.0
MEMORY_MEGABYTES_MAX = 4096
# Breadth first: the first behaviour that is found wrong is a shortest one.
FLAGS = ("-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-DBFS", f"-DMEMLIM={MEMORY_MEGABYTES_MAX}")


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    Attributes:
        is_whole: whether it went through all states within the bounds.
        states: so many different ones.
        failure: the assertion that is false in one of them; empty: in none.
        story: the steps to that state, the last ones, as Spin prints them.
    """

    is_whole: bool
    states: int
    failure: str
    story: str


def search(model: str, directory: Path, macros: Mapping[str, object], text: str | None = None) -> Search:
    """All behaviours of a model within the bounds that its macros say, or up to the first wrong one.

    Args:
        model: a file of this directory.
        directory: an empty one, for the program.
        macros: their values.
        text: of the model, where it is not the file's.
    """
    source = directory / model
    source.write_text((MODELS / model).read_text(encoding="utf-8") if text is None else text, encoding="utf-8")
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    run(["spin", *defined, "-a", model], directory)
    run(["gcc", *FLAGS, "-o", "pan", "pan.c"], directory)
    said = run(["./pan", "-w22"], directory)
    states = re.search(r"(\d+) states, stored", said)
    assert states is not None, said
    failure = re.search(r"pan:\d+: (.*) \(at depth", said)
    story = run(["spin", "-t", "-p", *defined, model], directory)[-4000:] if failure is not None else ""
    is_whole = "Search not completed" not in said and "errors: 0" in said
    return Search(is_whole, int(states[1]), failure[1] if failure is not None else "", story)


def run(command: list[str], directory: Path) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}: {said[-4000:]}"
    return said
