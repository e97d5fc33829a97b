"""Kernels as machine code in a file, called without numba, whose import takes a second and 65 MB.

`exporting.py` writes the file, at setup and when an image is built. It is one line of JSON (the header), zeros up to a page,
and code that runs at any address: all kernels, from one compilation. Its pages are mapped as they are, so processes share them.

The file is used only if nothing that it was made from has changed. Its name is a digest of the processor, of Python, numpy,
numba and the variables NUMBA_*; the header has a digest of each of our modules that was loaded when it was made. Otherwise
`compiling.py` compiles with numba, as if there were no file.

An entry point takes numpy arrays as they are, and integers of 64 bits. It compares type, dimensions and flags of each array
with those that it was compiled for, and refuses others before it reads their data.
"""

import ctypes
import functools
import hashlib
import json
import logging
import mmap
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

FILE_PREFIX = "machine-code-"
ARRAY, INTEGER = "a", "i"  # what an entry point takes
REFUSED = -(1 << 63)  # what it returns when an array is not of the kind it was compiled for
_FORMAT = b"1"
_HEADER_BYTES_MAX = 1 << 16
_LIBRARIES = ("numpy", "numba", "llvmlite")
_CPU_FACTS = ("vendor_id", "cpu family", "model", "flags")
_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent

_log = logging.getLogger("reput.kernels")
_is_made_here = False
_mapped: list[mmap.mmap] = []  # until the process ends: functions of ctypes do not own the code that they call


class Entry(NamedTuple):
    """Where a kernel's code begins, the kinds of its arguments, and how many numbers it returns."""

    at: int
    arguments: str
    result_count: int


class MachineCode:
    """The kernels of a file.

    Args:
        address: where its code is mapped.
        header: what `exporting.py` wrote.

    Attributes:
        features: those of the processor that it was compiled for.
    """

    def __init__(self, address: int, header: Mapping[str, Any]) -> None:
        self.features: list[str] = header["features"]
        self._modules = frozenset(header["modules"])
        self._entries = {name: Entry(*entry) for name, entry in header["entries"].items()}
        self._address = address

    def has(self, module: str) -> bool:
        """Whether this file was made from that kernel."""
        return module in self._modules

    def function(self, name: str, *, nogil: bool) -> Callable[..., Any] | None:
        """A kernel's function; None for one that only kernels call.

        Args:
            name: with its module.
            nogil: whether the GIL is released while it runs.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        kinds: list[Any] = [ctypes.py_object if kind == ARRAY else ctypes.c_int64 for kind in entry.arguments]
        make = ctypes.CFUNCTYPE if nogil else ctypes.PYFUNCTYPE
        if entry.result_count > 1:
            kinds.append(ctypes.POINTER(ctypes.c_int64))
        function: Any = make(ctypes.c_int64, *kinds)(self._address + entry.at)
        function.errcheck = _check if entry.result_count else _check_none
        return function if entry.result_count <= 1 else _returning_many(function, entry.result_count)


def _check(result: int, function: Any, arguments: Any) -> int:
    if result == REFUSED:
        raise TypeError("an argument is not an array of the kind that this kernel was compiled for")
    return result


def _check_none(result: int, function: Any, arguments: Any) -> None:
    _check(result, function, arguments)


def _returning_many(function: Any, count: int) -> Callable[..., tuple[int, ...]]:
    results = ctypes.c_int64 * count

    def call(*arguments: Any) -> tuple[int, ...]:
        found = results()
        function(*arguments, found)
        return tuple(found)

    return call


def directories() -> list[Path]:
    """Where the file may lie, the first one preferred: beside the sources, and in the user's cache."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return [_HERE / "__pycache__", Path(user_cache) / "reput"]


@functools.cache
def file_name() -> str | None:
    """The name of a file for this processor and these libraries; None where there can be none."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.implementation.name != "cpython":
        return None
    digest = hashlib.sha256(_FORMAT)
    digest.update(repr((sys.implementation.cache_tag, sys.abiflags, sys.maxsize)).encode())
    digest.update(repr(sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))).encode())
    for library in _LIBRARIES:
        spec = find_spec(library)
        if spec is None or spec.origin is None:
            return None
        for file in ("_version.py", "version.py"):
            path = Path(spec.origin).with_name(file)
            digest.update(path.read_bytes() if path.exists() else b"")
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    digest.update("\n".join(line for line in facts.splitlines() if line.startswith(_CPU_FACTS)).encode())
    return f"{FILE_PREFIX}{digest.hexdigest()[:16]}"


def digests(paths: Iterable[str]) -> dict[str, str]:
    """A digest of each of our modules, given by their paths below the root."""
    return {path: hashlib.sha256((_ROOT / path).read_bytes()).hexdigest() for path in paths}


def make_anew() -> None:
    """Lets this process compile all kernels, whatever files there are; to be called before a kernel is imported."""
    global _is_made_here  # noqa: PLW0603
    _is_made_here = True
    find.cache_clear()


def is_made_here() -> bool:
    """Whether this process makes the file, so that it must compile, and not read a cache either."""
    return _is_made_here


@functools.cache
def find() -> MachineCode | None:
    """The kernels of the file that is there and fits; None without one, and in the process that makes it."""
    if _is_made_here:
        return None
    try:
        name = file_name()
        for directory in directories() if name else ():
            found = read(directory / str(name))
            if found is not None:
                return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("The kernels' machine code cannot be used, they are compiled: %s: %s", type(error).__name__, error)
    return None


def read(path: Path) -> MachineCode | None:
    """The kernels of a file; None if there is no file, or if our modules are not those that it was made from.

    Raises:
        OSError: it cannot be mapped.
        ValueError, KeyError, TypeError: it is damaged.
    """
    import numpy as np

    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):  # the latter where our modules lie in a zip file
        return None
    with file:
        header = json.loads(file.readline(_HEADER_BYTES_MAX))
        try:
            if digests(header["sources"]) != header["sources"]:
                return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    code = memoryview(mapping)[header["code_at"] :]
    if hashlib.sha256(code).hexdigest() != header["code_digest"]:
        raise ValueError(f"{path} is damaged: remove it, and run python -m deploy.compile_kernels")
    _mapped.append(mapping)
    return MachineCode(np.frombuffer(code, dtype=np.uint8).ctypes.data, header)
