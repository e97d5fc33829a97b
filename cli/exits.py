"""What the command's exit code says, and how a failure reaches the person: reason, message, what to do."""

import enum
import sys
from typing import NoReturn


class Exit(enum.IntEnum):
    """Exit codes of every verb."""

    FOUND = 0
    NOTHING_FOUND = 1
    USAGE = 2
    PARTIAL = 3
    UNAVAILABLE = 4


class CliError(Exception):
    """A failure to be shown and to end the command.

    Args:
        code: the exit code.
        reason: one UPPER_SNAKE word, as in the service's ErrorInfo.
        message: what happened.
        hint: what to do now; empty when there is nothing to add.
    """

    def __init__(self, code: Exit, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.hint = hint


def usage_error(message: str, hint: str = "") -> NoReturn:
    """Refuse what was typed."""
    raise CliError(Exit.USAGE, "INVALID_ARGUMENT", message, hint)


def note(text: str) -> None:
    """Tell a person something that is not data: only on a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def warn(text: str) -> None:
    """Tell what must not be missed, such as an incomplete answer."""
    print(f"reput: {text}", file=sys.stderr)


def show_error(error: CliError) -> None:
    """Print a failure on stderr."""
    from cli.terminal import neutralise

    print(f"reput: {error.reason}: {neutralise(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {neutralise(error.hint)}", file=sys.stderr)
