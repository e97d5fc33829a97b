"""Compiles all kernels of numba in advance, so that services do not have to; `build_kernels.py` compiles those of Cython.

    python -m deploy.compile_kernels

It writes them as machine code that needs no numba (`store/compiled/machine_code.py`); where that cannot be, it fills numba's
cache. It prints the kernels that it could not compile and still exits with 0: services use the plain twins then.
"""

import shutil
import sys

from deploy import build_kernels
from store.compiled import loading, machine_code


def kernel_names() -> list[str]:
    """The module names of all kernels of numba."""
    return build_kernels.kernel_names(by_cython=False)


def main() -> int:
    """Compile all kernels; print a line for each that failed. The exit code is always 0."""
    try:
        if machine_code.find() is None:
            _write_machine_code() if machine_code.file_name() else _fill_cache()
    except ImportError as error:
        print(f"kernels: numba cannot be used, plain code will serve: {error}", file=sys.stderr)
    return 0


def _write_machine_code() -> None:
    from store.compiled import exporting

    name = str(machine_code.file_name())
    for directory in machine_code.directories():
        try:
            exporting.export(kernel_names(), directory / name)
        except OSError:
            continue
        except Exception as error:  # a compiler may raise any error
            print(f"kernels: there is no machine code, services will compile: {error}", file=sys.stderr)
            return
        for other in set(directory.glob(machine_code.FILE_PREFIX + "*")) - {directory / name}:
            other.unlink(missing_ok=True)
        return


def _fill_cache() -> None:
    from store.compiled import compiling

    folders = {path.parent for path in build_kernels.kernel_files()}
    directories = {compiling.cache_directory(folder) for folder in folders}
    for parent in {directory.parent for directory in directories if directory is not None}:
        for other in set(parent.glob(compiling.CACHE_PREFIX + "*")) - directories:
            shutil.rmtree(other, ignore_errors=True)
    for name in kernel_names():
        if loading.load(name) is None:
            print(f"kernels: {name} is not compiled, plain code will serve", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
