"""strace: every system call of another process, seen and made to fail, without a change to its code.

    prefix = strace_prefix(log, calls=("fdatasync",), inject="fdatasync:error=EIO:when=3", paths=(segment,))
    with Service("commitlog", store, command_prefix=prefix): ...

Traps: `when=N` counts for each thread by itself, not for the process. So a count means something only for calls that one
thread makes: name the call, and with `paths` the file. Trace the interpreter itself, never a script that starts it, whose
calls count as well. A signal comes with the call, an error instead of it.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

WRITE_CALLS = (
    "pwrite64",
    "pwritev",
    "pwritev2",
    "write",
    "writev",
    "fdatasync",
    "fsync",
    "msync",
    "sync_file_range",
    "ftruncate",
    "truncate",
    "fallocate",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "unlink",
    "unlinkat",
    "open",
    "openat",
    "creat",
    "mmap",
)
_LINE = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>.*)$")
_UNFINISHED = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<arguments>.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)\) += (?P<result>.*)$")


class TracedCall(NamedTuple):
    """One system call: who, which, its arguments and result as strace writes them (`-y`: descriptors with paths)."""

    thread: int
    name: str
    arguments: str
    result: str

    @property
    def was_injected(self) -> bool:
        """Whether the result was made up."""
        return "(INJECTED)" in self.result


def why_no_strace() -> str | None:
    """Why processes cannot be traced here, in words; None when they can."""
    if shutil.which("strace") is None:
        return "needs strace (a package of that name)"
    with tempfile.NamedTemporaryFile() as log:
        tried = subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-o", log.name, "-e", "trace=fsync", "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    return (
        None if tried.returncode == 0 else f"needs the right to ptrace: {tried.stderr.decode(errors='replace')[:200]}"
    )


def strace_prefix(
    log: Path, *, calls: Sequence[str] = WRITE_CALLS, inject: str = "", paths: Sequence[Path] = ()
) -> tuple[str, ...]:
    """The words to put before a command.

    Args:
        log: where the trace goes.
        calls: which system calls are seen.
        inject: what to do to them, as strace's `inject=`; "" nothing.
        paths: only calls on these files; they need not exist yet.
    """
    prefix = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "0", "-o", str(log), "-e", f"trace={','.join(calls)}"]
    if inject:
        prefix += ["-e", f"inject={inject}"]
    for path in paths:
        prefix += ["-P", str(path.resolve())]
    return tuple(prefix)


def read_trace(log: Path) -> list[TracedCall]:
    """The calls in the order in which they began; one that never returned has the result ""."""
    calls: list[TracedCall] = []
    open_calls: dict[tuple[int, str], int] = {}
    for line in log.read_text(errors="replace").splitlines():
        if match := _UNFINISHED.match(line):
            open_calls[int(match["pid"]), match["name"]] = len(calls)
            calls.append(TracedCall(int(match["pid"]), match["name"], match["arguments"], ""))
        elif match := _RESUMED.match(line):
            at = open_calls.pop((int(match["pid"]), match["name"]), None)
            if at is not None:
                calls[at] = calls[at]._replace(arguments=calls[at].arguments + match["rest"], result=match["result"])
        elif match := _LINE.match(line):
            calls.append(TracedCall(int(match["pid"]), match["name"], match["arguments"], match["result"]))
    return calls
