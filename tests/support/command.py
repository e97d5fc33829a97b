"""The `reput` command in the test's own process: a process of its own costs half a second of CPU for each call.

tests/cli/test_main.py and tests/e2e/test_main_job.py show that the command also runs as a process.
"""

import contextlib
import io
import os
import subprocess
from unittest import mock

import cli.main


def run_command(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """One run, with pipes for standard input, output and errors; the result is that of `subprocess.run`.

    Args:
        arguments: the words behind `reput`.
        stdin: what it reads.
        environment: variables that are set for it.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "80", **environment}),
        mock.patch("sys.stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = cli.main.main(arguments)
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["reput", *arguments], code, *printed)
