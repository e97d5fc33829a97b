"""The message of a failed Spark job: its first error, without the stack traces around it."""

import re

from cli.exits import CliError, Exit

# `store.errors.RecordCorruptedError: ...`, as Python writes the last line of a traceback; Spark may indent it, or write it
# behind its own words when there is no traceback.
_PYTHON_ERROR = re.compile(
    r"(?:^\s*|^\[PYTHON_DATA_SOURCE_ERROR\] .*?: )"
    r"(?:pyspark\.errors[\w.]*\.)?((?:[a-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception)): (.+)$",
    re.MULTILINE,
)
_OURS = ("store.", "pipeline.", "services.")
# Errors of the store that are not caused by wrong input.
_UNAVAILABLE = ("DiskFullError", "FlushFailedError", "ServiceUnavailableError")


def failure_in_spark(error: Exception) -> CliError:
    """The failure of the command for an error of Spark.

    Errors of the store and the pipeline keep their message, most of them with the exit code of wrong input. Others are
    failures of Spark.
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
