"""The machine that figures were measured on."""

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess

GIB = 1 << 30


def describe(directory: pathlib.Path) -> dict[str, str]:
    """Facts about this machine for the reader of the table; the disk is the one under `directory`."""
    memory = re.search(r"MemTotal:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    return {
        "CPU": f"{_cpu()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{int(memory.group(1)) / (1 << 20):.0f} GiB" if memory else "unknown",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": _disk(directory),
        "Python": f"{platform.python_version()}, "
        + ", ".join(_version(name) for name in ("grpcio", "numpy", "cython")),
        "Java": _java(),
        "load before": load(),
    }


def load() -> str:
    """The load averages of the last 1, 5 and 15 minutes."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _disk(directory: pathlib.Path) -> str:
    path = directory.resolve()
    best = ("", "unknown", "")
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        device, point, kind = line.split()[:3]
        if path.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, device, kind)
    free = shutil.disk_usage(path).free
    return f"{best[1]} ({best[2]}), {free / GIB:.0f} GiB free"


def _version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {name}"


def _java() -> str:
    if not shutil.which("java"):
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (done.stderr or done.stdout).splitlines()[0]
