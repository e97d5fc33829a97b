"""Transcripts: text files with commands and the answers that they must get, in the manner of etcd-io/raft's `testdata`.

    # What the story is about. Lines that begin with # are kept as they are.

    append topic=Orders key=order-1 body=hello
    ----
    Orders/0 queue_offset=0 commit_log_offset=0

A step is a command line, a line of four hyphens and the answer, which ends at an empty line. A command line is split as a
shell splits it: the command, then words and `name=value`. `pytest tests/scenarios --rewrite` writes the answers that it gets
into the files; the difference is read in review.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Command:
    """One command line: its words in order, and its named values."""

    words: tuple[str, ...]
    values: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> "Command":
        """Split a line as a shell does."""
        parts = shlex.split(line)
        named = [part for part in parts[1:] if "=" in part]
        words = [part for part in parts if part not in named]
        return cls(tuple(words), dict(part.split("=", 1) for part in named))


def play(text: str, answer: Callable[[Command], str]) -> str:
    """The transcript with the answers that the commands get.

    Args:
        text: a transcript.
        answer: runs one command; its answer may have several lines.

    Raises:
        ValueError: a block is neither comments nor a step.
    """
    played = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        begin = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
        if begin == len(lines):
            played.append(block)
            continue
        if len(lines) < begin + 2 or lines[begin + 1] != SEPARATOR:
            raise ValueError(f"{lines[begin]!r} has no line {SEPARATOR!r} behind it: write a command, then {SEPARATOR}")
        given = answer(Command.parse(lines[begin])).strip("\n")
        played.append("\n".join([*lines[: begin + 2], *([given] if given else [])]))
    return "\n\n".join(played) + "\n"


def check(path: Path, answer: Callable[[Command], str], *, rewrite: bool) -> None:
    """Play the transcript of a file and compare it with what the file says; or write it."""
    expected = path.read_text(encoding="utf-8")
    played = play(expected, answer)
    if rewrite:
        path.write_text(played, encoding="utf-8")
        return

    assert expected == played
