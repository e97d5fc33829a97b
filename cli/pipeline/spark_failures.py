"""What a failed job of Spark's says to a person: the error that began it, not the stacks that carried it."""

import re

from cli.exits import CliError, Exit

# `store.errors.RecordCorruptedError: ...`, as Python writes the last line of a traceback; Spark may indent it.
_PYTHON_ERROR = re.compile(
    r"^\s*(?:pyspark\.errors[\w.]*\.)?((?:[a-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
_OURS = ("store.", "pipeline.", "services.")
# Of the store's own errors, those that are nobody's wrong input.
_UNAVAILABLE = ("DiskFullError", "FlushFailedError", "ServiceUnavailableError")


def failure_in_spark(error: Exception) -> CliError:
    """An error of Spark's as what ends the command.

    The store's and the pipeline's own errors are told in their words, most as wrong input; all else as a failure of Spark.
    """
    text = str(error)
    found = _PYTHON_ERROR.findall(text)
    for module, name, message in reversed(found):
        if module.startswith(_OURS):
            code = Exit.UNAVAILABLE if name in _UNAVAILABLE else Exit.USAGE
            return CliError(code, _reason(name), message)
    if found:
        _, name, message = found[-1]
        return CliError(Exit.UNAVAILABLE, "JOB_FAILED", f"{name}: {message}")
    return CliError(Exit.UNAVAILABLE, "JOB_FAILED", text.strip().partition("\n")[0])


def _reason(name: str) -> str:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name.removesuffix("Error"))
    return "_".join(words).upper()
