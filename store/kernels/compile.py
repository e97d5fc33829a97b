"""Compiles all kernels ahead, so that no service ever waits for a compiler.

    python -m store.kernels.compile

Says what it could not compile and ends well all the same: services do without.
"""

import pkgutil
import shutil
import sys

import store.kernels
from store.kernels import loading

KERNEL_ENDING = "_kernel"


def kernel_names() -> list[str]:
    """The names of all kernels there are."""
    return [
        module.name for module in pkgutil.iter_modules(store.kernels.__path__) if module.name.endswith(KERNEL_ENDING)
    ]


def main() -> int:
    """Compile all; one line for each that failed."""
    try:
        from store.kernels import compiling
    except Exception as error:
        print(f"kernels: numba cannot be used, plain code will serve: {error}", file=sys.stderr)
        return 0
    directory = compiling.cache_directory()
    if directory is not None:
        for other in directory.parent.glob(compiling.CACHE_PREFIX + "*"):
            if other != directory:
                shutil.rmtree(other, ignore_errors=True)
    for name in kernel_names():
        if loading.load(name) is None:
            print(f"kernels: {name} is not compiled, plain code will serve", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
