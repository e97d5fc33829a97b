"""How kernels are compiled, and where the result is kept.

The cache lies beside the sources, or where that cannot be written in the user's cache directory, which then begins with
a copy of it; where neither can, each process compiles for itself. numba looks at the age of a kernel's own file only, not
of the functions that it calls, so the directory is named after the content of the modules that kernels share.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import config

SHARED_MODULES = (
    "append_layout.py",
    "bytes_kernel.py",
    "compiling.py",
    "crc32_fold.py",
    "crc32_kernel.py",
    "frame_kernel.py",
    "guard_kernel.py",
    "names_kernel.py",
    "scan_layout.py",
)
CACHE_PREFIX = "kernels-"
Bytes = npt.NDArray[np.uint8]
Number = Any  # an integer of the machine, of the width that numba finds
_HERE = Path(__file__).resolve().parent

_Function = TypeVar("_Function", bound=Callable[..., Any])


def shared_digest() -> str:
    """Names the content of the modules whose functions other kernels call, and whether NUMBA_BOUNDSCHECK is set."""
    digest = hashlib.sha256(repr(vars(config)["BOUNDSCHECK"]).encode())
    for name in SHARED_MODULES:
        digest.update((_HERE / name).read_bytes())
    return digest.hexdigest()[:12]


def cache_directory() -> Path | None:
    """A directory for compiled code that can be written, made when it is missing; None when there is none."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    name = CACHE_PREFIX + shared_digest()
    shipped = _HERE / "__pycache__" / name
    for directory in (shipped, Path(user_cache) / "reput" / name):
        try:
            if directory != shipped:
                take_along(shipped, directory)
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK | os.X_OK):
            return directory
    return None


def take_along(shipped: Path, directory: Path) -> None:
    """Begins a cache with a copy of what was compiled where nothing may be added, as in an image with a read-only root.

    Does nothing where there is no such thing, or where the directory is there already.

    Raises:
        OSError: the directory cannot be made.
    """
    if not shipped.is_dir() or directory.exists():
        return
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        # numba knows a source by its time and size, a compiled function by its name: the copy is as good.
        shutil.copytree(shipped, scratch / "cache")
        with contextlib.suppress(OSError):  # another process was quicker
            os.rename(scratch / "cache", directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


_directory = cache_directory()
if _directory is not None:
    vars(config)["CACHE_DIR"] = str(_directory)


def compiled(function: _Function) -> _Function:
    """A kernel's function: compiled at its first call for the types of its arguments, and run without the GIL.

    Neither indices nor lengths are checked by the compiler: the function does that itself before each use.
    """
    compile_: Callable[[_Function], Any] = numba.njit(
        cache=_directory is not None, nogil=True, boundscheck=False, error_model="numpy"
    )
    return cast(_Function, compile_(function))


def compiled_holding(function: _Function) -> _Function:
    """As `compiled`, but run with the GIL held: for work that takes less time than getting the GIL back from others."""
    compile_: Callable[[_Function], Any] = numba.njit(
        cache=_directory is not None, nogil=False, boundscheck=False, error_model="numpy"
    )
    return cast(_Function, compile_(function))
