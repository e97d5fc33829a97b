"""Kernels written as Python that Cython compiles: which are compiled here, and from which source.

Such a kernel begins with the comment `# cython:`, and runs uncompiled, too. `deploy/build_kernels.py` compiles it into an
extension module beside it, `NAME.DIGEST.SUFFIX`. The digest is that of the source, of this machine's kind and of the builder's
options. So a file that was made from another source, or for another machine, is never loaded, and `import` finds the source.

What several kernels share is a part: a module that begins with that comment, too, and that a kernel, or another part, imports
names from. A compiled kernel has the text of its parts in itself, in place of those imports: the C compiler sees all of it, and
the digest is that of all. Uncompiled, a part is an ordinary module.
"""

import functools
import hashlib
import platform
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

MARK = b"# cython:"
STABLE_ABI = ".abi3.so"
# One file serves all later versions of Python too, where Python has a stable ABI.
SUFFIX = STABLE_ABI if STABLE_ABI in EXTENSION_SUFFIXES else EXTENSION_SUFFIXES[0]
OPTIONS = ("2", "-O3", "-fno-strict-aliasing", "-fwrapv", "-fvisibility=hidden", "-fPIC", "-shared", "-g0")
HOW_TO_BUILD = "install a C compiler (cc) or `pip install ziglang`, and run `python -m deploy.build_kernels`"
_DIGEST_CHARACTER_COUNT = 16
_IMPORT = re.compile(rb"^from ([\w.]+) import", re.MULTILINE)
_ROOT = Path(__file__).resolve().parent.parent.parent


def source_of(name: str) -> Path:
    """The source of a kernel.

    Args:
        name: the module, such as "store.derive.index_fill_kernel".
    """
    return _ROOT.joinpath(*name.split(".")).with_suffix(".py")


@functools.cache
def is_cython(name: str) -> bool:
    """Whether Cython compiles this kernel; False for a module that has no such source."""
    try:
        with source_of(name).open("rb") as file:
            return file.read(len(MARK)) == MARK
    except OSError:
        return False


def parts_of(name: str) -> list[str]:
    """The parts that a kernel has, each behind those that it has itself.

    Raises:
        OSError: the source cannot be read.
    """
    found: list[str] = []
    for match in _IMPORT.finditer(source_of(name).read_bytes()):
        part = match[1].decode()
        if is_cython(part):
            found += [inner for inner in (*parts_of(part), part) if inner not in found]
    return found


def binary_of(name: str, machine: str = platform.machine(), suffix: str = SUFFIX) -> Path:
    """Where the extension module made from this kernel's present source lies, if there is one.

    Args:
        name: the kernel.
        machine: what it is compiled for, as `platform.machine()` says it.
        suffix: what Python expects of an extension module's name.
    """
    source = source_of(name)
    digest = hashlib.sha256(repr((OPTIONS, sys.platform, machine, suffix)).encode())
    for part in (*parts_of(name), name):
        digest.update(source_of(part).read_bytes())
    return source.with_suffix(f".{digest.hexdigest()[:_DIGEST_CHARACTER_COUNT]}{suffix}")


def load(name: str) -> ModuleType | None:
    """The compiled kernel; None when it is not compiled.

    Raises:
        ImportError: the system refuses the file.
    """
    path = binary_of(name)
    return _load(name, ExtensionFileLoader(name, str(path))) if path.exists() else None


def load_source(name: str) -> ModuleType:
    """The kernel as plain Python."""
    return _load(name, SourceFileLoader(name, str(source_of(name))))


def _load(name: str, loader: ExtensionFileLoader | SourceFileLoader) -> ModuleType:
    spec = spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None, name
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
