"""Compiles all kernels in advance, so that services do not have to.

    python -m deploy.compile_kernels

It prints the kernels that it could not compile and still exits with 0: services use the plain twins then.
"""

import shutil
import sys
from pathlib import Path

from store.compiled import loading

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = ("store/*/*_kernel.py", "services/*/*_kernel.py", "commitlog_svc/*/*_kernel.py")


def kernel_names() -> list[str]:
    """The module names of all kernels."""
    files = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


def main() -> int:
    """Compile all kernels; print a line for each that failed. The exit code is always 0."""
    try:
        from store.compiled import compiling
    except Exception as error:
        print(f"kernels: numba cannot be used, plain code will serve: {error}", file=sys.stderr)
        return 0
    folders = {path.parent for pattern in PATTERNS for path in ROOT.glob(pattern)}
    directories = {compiling.cache_directory(folder) for folder in folders}
    for parent in {directory.parent for directory in directories if directory is not None}:
        for other in set(parent.glob(compiling.CACHE_PREFIX + "*")) - directories:
            shutil.rmtree(other, ignore_errors=True)
    for name in kernel_names():
        if loading.load(name) is None:
            print(f"kernels: {name} is not compiled, plain code will serve", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
