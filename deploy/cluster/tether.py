"""Runs a command that ends with the process that started it, whatever that one dies of: `tether PARENT_PID COMMAND ...`."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

from services.serving.parent_watch import EXIT_CODE_ORPHANED, PR_SET_PDEATHSIG


def tethered(command: Sequence[str]) -> list[str]:
    """The command line that runs a command as long as this process lives; start it from a thread that lives as long."""
    return [sys.executable, "-P", "-m", "deploy.cluster.tether", str(os.getpid()), *command]


def main() -> None:
    """Become the command. The kernel's wish for a signal outlives the change."""
    parent_pid, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before
        sys.exit(EXIT_CODE_ORPHANED)
    os.execvp(command[0], command)  # noqa: S606  # the command of the starter


if __name__ == "__main__":
    main()
