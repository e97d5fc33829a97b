"""Exit codes of the command, and failures as a person reads them: reason, message, what to do."""

import enum
import sys
from typing import NoReturn

PARTIAL = "partial: a shard did not answer; `reput status` shows which"
PARTIAL_OR_BUILDING = "partial: a shard did not answer or is still building; `reput status` shows which"


class Exit(enum.IntEnum):
    """Exit codes of every verb."""

    FOUND = 0
    NOTHING_FOUND = 1
    USAGE = 2
    PARTIAL = 3
    UNAVAILABLE = 4


class CliError(Exception):
    """A failure that ends the command and is shown.

    Args:
        code: the exit code.
        reason: one UPPER_SNAKE word, as in the service's ErrorInfo.
        message: what happened.
        hint: what to do; empty when there is nothing to add.
    """

    def __init__(self, code: Exit, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.hint = hint


def store_failure(error: Exception) -> CliError:
    """A failure of the store; the exit code says whether the arguments or the machine must change."""
    from store.errors import DiskFullError, FlushFailedError, ServiceUnavailableError, StoreError

    assert isinstance(error, StoreError), error
    is_unavailable = isinstance(error, DiskFullError | FlushFailedError | ServiceUnavailableError)
    return CliError(Exit.UNAVAILABLE if is_unavailable else Exit.USAGE, error.reason(), error.message)


def usage_error(message: str, hint: str = "") -> NoReturn:
    """Refuse an argument: raises CliError."""
    raise CliError(Exit.USAGE, "INVALID_ARGUMENT", message, hint)


def note(text: str) -> None:
    """Print a remark on stderr, only if it is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def say_empty(text: str) -> None:
    """Say on stderr that an answer is empty, also where it is no terminal: an empty stdout alone could be a failure."""
    print(text, file=sys.stderr)


def warn(text: str) -> None:
    """Print a warning on stderr, such as of an incomplete answer."""
    print(f"reput: {text}", file=sys.stderr)


def show_error(error: CliError) -> None:
    """Print a failure on stderr."""
    from cli.terminal import neutralise

    print(f"reput: {error.reason}: {neutralise(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {neutralise(error.hint)}", file=sys.stderr)
