"""How kernels are compiled, and where the result is kept.

A kernel whose machine code was made at setup is not compiled, and numba is not imported (`machine_code.py`). All others are
compiled by numba, which has a cache.

The cache lies beside this file. Where that directory cannot be written, the cache lies in the user's cache directory and
begins as a copy of the first. Where neither can be written, each process compiles for itself. numba compares the age of a
kernel's own file, not of the functions that it calls. So each folder with kernels has a cache directory that is named after
the content of its modules that kernels can call, and of the modules of `store` that all kernels share.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from store.compiled import machine_code

CACHE_PREFIX = "kernels-"
# Endings of the modules whose functions and constants are compiled into other kernels.
CALLED_ENDINGS = ("_kernel", "layout", "_fold", "compiling")
Bytes = npt.NDArray[np.uint8]
Number = Any  # a machine integer; numba infers its width
_HERE = Path(__file__).resolve().parent

_Function = TypeVar("_Function", bound=Callable[..., Any])


@functools.cache
def shared_digest(folder: Path) -> str:
    """A digest of the modules that kernels in `folder` may call, and of the setting NUMBA_BOUNDSCHECK."""
    from numba.core import config

    digest = hashlib.sha256(repr(vars(config)["BOUNDSCHECK"]).encode())
    for shared in dict.fromkeys((_HERE, _HERE.parent / "format", folder)):
        for path in sorted(shared.rglob("*.py")):
            if path.stem.endswith(CALLED_ENDINGS):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def cache_directory(folder: Path) -> Path | None:
    """A writable directory for compiled code, made when it is missing; None when there is none.

    Args:
        folder: where the kernel's source lies.
    """
    user_cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    name = CACHE_PREFIX + shared_digest(folder)
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
    """Begins a cache with a copy of the shipped one, which may be read-only, as in an image with a read-only root.

    Does nothing without a shipped cache, or where the directory exists.

    Raises:
        OSError: the directory cannot be made.
    """
    if not shipped.is_dir() or directory.exists():
        return
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        # numba identifies a source by its time and size, and a compiled function by its name: the copy is valid.
        shutil.copytree(shipped, scratch / "cache")
        with contextlib.suppress(OSError):  # another process made it first
            os.rename(scratch / "cache", directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compiled(function: _Function) -> _Function:
    """A kernel's function: compiled at its first call for the types of its arguments, and run without the GIL.

    The compiled code checks no indices or lengths: the function must check them itself before each use.
    """
    return _compile(function, nogil=True)


def compiled_holding(function: _Function) -> _Function:
    """As `compiled`, but run with the GIL held: for work that takes less time than getting the GIL back.

    It is called `NAME_holding`, and passes its arguments on to the kernel's function NAME.
    """
    return _compile(function, nogil=False)


def cpu_features() -> list[str]:
    """What the compiler may use of the processor, as LLVM names it: `+pclmul`."""
    found = machine_code.find()
    if found is not None:
        return found.features
    from numba.core.registry import cpu_target

    features: str = cpu_target.target_context.codegen().magic_tuple()[2]
    return features.split(",")


def intrinsic(function: Callable[..., Any]) -> Any:
    """numba's `intrinsic`: a function that makes code of the compiler's language."""
    if machine_code.find() is not None:
        return function
    from numba.extending import intrinsic as intrinsic_

    return intrinsic_(function)


def _compile(function: _Function, *, nogil: bool) -> _Function:
    found = machine_code.find()
    if found is not None and found.has(function.__module__):
        name = f"{function.__module__}.{function.__name__}"
        # What only kernels call stays as it is: nothing calls it now.
        ready_made = found.function(name if nogil else name.removesuffix("_holding"), nogil=nogil)
        return cast(_Function, ready_made) if ready_made is not None else function
    import numba
    from numba.core import config

    folder = Path(function.__code__.co_filename).parent
    directory = None if machine_code.is_made_here() else cache_directory(folder)
    if directory is not None:
        vars(config)["CACHE_DIR"] = str(directory)  # numba reads it when it caches a function
    compile_: Callable[[_Function], Any] = numba.njit(
        cache=directory is not None, nogil=nogil, boundscheck=False, error_model="numpy"
    )
    return cast(_Function, compile_(function))
