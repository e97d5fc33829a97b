"""How much memory a process may use: that of its container, of a cgroup around it, or of the machine.

/proc/self/cgroup   0::/a/b        the process is in the cgroup /a/b, as its container sees it
/sys/fs/cgroup/a/b/memory.max      bytes, or `max`; the cgroups above it count, too (cgroup v2)
/sys/fs/cgroup/memory/memory.limit_in_bytes                                     (cgroup v1, of the container)
"""

import contextlib
import os
from pathlib import Path


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """The least of these.

    Args:
        root: where /proc and /sys are.
    """
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    cgroups = root / "sys/fs/cgroup"
    group = Path("/")
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                group = Path(line[len("0::") :])
    files = [cgroups.joinpath(*each.parts[1:]) / "memory.max" for each in (group, *group.parents)]
    for file in (*files, cgroups / "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says `max`
            found.append(int(file.read_text()))
    return min(found)
