"""Make an environment smaller and quicker to start before it becomes an image: `.venv/bin/python tools/compile_image.py`.

Byte code of every module, since a read-only root keeps none that is made later, and never compared with its source; no tests
and headers of libraries; compiled kernels that every user may read. A second call compiles only what is new.
"""

import compileall
import importlib.util
import pathlib
import py_compile
import shutil
import sys
import sysconfig

UNCHECKED_HASH = 1  # the flags behind the magic number of byte code (PEP 552)
ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders of libraries that nothing at run time reads; numpy's `testing` is not among them: it is imported.
NOT_NEEDED = (
    "numpy/_core/tests",
    "numpy/lib/tests",
    "pandas/tests",
    "pyarrow/include",
    "pyarrow/tests",
    "pyspark/examples",
    "pyspark/data",
    "pyspark/tests",
)


class Compiled:
    """Says which modules `compileall` leaves out, in place of a regular expression: those that it compiled before."""

    def search(self, path: str) -> bool:
        """Whether the byte code of a module is newer than its source, and never compared with it."""
        source, made = pathlib.Path(path), pathlib.Path(importlib.util.cache_from_source(path))
        if not made.is_file() or made.stat().st_mtime_ns < source.stat().st_mtime_ns:
            return False
        with made.open("rb") as file:
            return int.from_bytes(file.read(8)[4:], "little") == UNCHECKED_HASH


def main() -> int:
    """Compile and remove; refuse an environment that is not ours alone."""
    if sys.prefix == sys.base_prefix:
        print("compile_image: run it with the interpreter of a virtual environment", file=sys.stderr)
        return 2
    libraries = pathlib.Path(sysconfig.get_paths()["purelib"])
    for name in NOT_NEEDED:
        shutil.rmtree(libraries / name, ignore_errors=True)
    for folder in (libraries, ROOT):
        # Some libraries ship code for other versions of Python, which does not compile.
        compileall.compile_dir(
            str(folder),
            rx=Compiled(),
            force=True,  # also in place of byte code that is compared with its source
            quiet=2,
            workers=0,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
