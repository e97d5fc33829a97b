"""Compiles the kernels (`store/compiled/built.py`), so that they run as machine code.

    python -m deploy.build_kernels              what setup calls: goes on where nothing can compile
    python -m deploy.build_kernels --require    exit 1 then: for an image or a release, which cannot be mended later

The C compiler is `cc`, or the one that $CC names; where there is none, that of the package `ziglang` if it is installed. Where
there is none of them, or no Python.h, one line says what to install, and plain Python does the work.
A kernel whose source has not changed is left as it is.
"""

import ast
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from store.compiled import built

ROOT = Path(__file__).resolve().parent.parent
PATTERN = "*_kernel.py"
FOLDERS = ("store", "services", "commitlog_svc")
COMPILE_SECONDS_MAX = 600.0  # of one kernel, on a busy machine
STABLE_ABI_VERSION = "0x030B0000"  # Python 3.11


class BuildError(Exception):
    """A kernel was not compiled; the text says why."""


def kernel_files() -> list[Path]:
    """The sources of all kernels."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob(PATTERN))


def kernel_names() -> list[str]:
    """The module names of all kernels."""
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in kernel_files()]


def compiler() -> list[str]:
    """The command that compiles C.

    Raises:
        BuildError: there is none, or no header of Python.
    """
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        raise BuildError(f"there is no {headers / 'Python.h'}: install Python's headers (Debian: python3-dev)")
    named = shlex.split(os.environ.get("CC", "cc"))
    if named and shutil.which(named[0]):
        return named
    if find_spec("ziglang") is not None:
        # Without that it compiles for this processor's model alone.
        return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    raise BuildError(f"there is no C compiler: {built.HOW_TO_BUILD}")


def whole_source(name: str) -> str:
    """The source of a kernel with its parts before it, and without the imports from them.

    Raises:
        BuildError: a part is not compiled as the kernel is, is not imported by `from PART import NAME`, or gives a second
            meaning to a name.
        OSError: a source cannot be read.
    """
    modules = [*built.parts_of(name), name]
    texts: list[str] = []
    meanings: dict[str, str] = {}
    directives = _lines_of(name)[0]
    for module in modules:
        lines = _lines_of(module)
        if lines[0] != directives:
            raise BuildError(f"{name}: its part {module} has another first line")
        for node in ast.parse("".join(lines)).body:
            if isinstance(node, ast.ImportFrom) and node.module in modules:
                if any(alias.asname or alias.name == "*" for alias in node.names):
                    raise BuildError(f"{module}: it imports from the part {node.module} under another name")
                lines[node.lineno - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or node.lineno) - node.lineno + 1)
                continue
            for named, meaning in _meanings_of(node, module).items():
                if meanings.setdefault(named, meaning) != meaning:
                    raise BuildError(f"{name}: two of {', '.join(modules)} give a meaning to {named}")
        texts.append("".join(lines))
    return "".join(texts)


def build(name: str, command: Sequence[str]) -> Path:
    """Compiles one kernel; returns its file, beside the source, under its name only when it is whole.

    Args:
        name: the module.
        command: see `compiler`.

    Raises:
        BuildError: Cython or the C compiler refused it.
        OSError: the folder cannot be written.
    """
    source, binary = built.source_of(name), built.binary_of(name)
    made = source.parent / f".{os.getpid()}-{binary.name}"
    with tempfile.TemporaryDirectory() as scratch:
        c_file, whole = Path(scratch, source.stem + ".c"), Path(scratch, source.name)
        whole.write_text(whole_source(name))
        cython = [
            sys.executable,
            "-m",
            "cython",
            "-3",
            "-I",
            str(ROOT),
            "--module-name",
            name,
            "-o",
            str(c_file),
            str(whole),
        ]
        _run(name, cython)
        stable = [f"-DPy_LIMITED_API={STABLE_ABI_VERSION}"] if binary.name.endswith(built.STABLE_ABI) else []
        include = f"-I{sysconfig.get_paths()['include']}"
        try:
            _run(name, [*command, *built.OPTIONS[1:], *stable, include, str(c_file), "-o", str(made)])
            made.chmod(0o755)
            os.replace(made, binary)
        finally:
            made.unlink(missing_ok=True)
    for other in source.parent.glob(f"{source.stem}.*{built.SUFFIX}"):
        if other != binary:
            other.unlink(missing_ok=True)
    return binary


def build_missing(say: Callable[[str], object] = lambda line: None) -> list[Path]:
    """Compiles the kernels that are not compiled; returns the files of all.

    Args:
        say: gets a line after each; all take a minute or two.

    Raises:
        BuildError, OSError: see `build`.
    """
    names = kernel_names()
    missing = [name for name in names if not built.binary_of(name).exists()]
    if missing:
        if find_spec("cython") is None:
            raise BuildError("Cython is not installed: `pip install cython`")
        command = compiler()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, _ in enumerate(pool.map(lambda name: build(name, command), missing), 1):
                say(f"kernels: {number} of {len(missing)} compiled")
    return [built.binary_of(name) for name in names]


def main(arguments: Sequence[str] = ()) -> int:
    """Compiles all; says in one line why it could not. The exit code is 0 all the same, without `--require`."""
    try:
        build_missing(partial(print, flush=True))
    except (BuildError, OSError) as error:
        print(f"kernels: plain Python, 10 to 100 times slower, does their work: {error}", file=sys.stderr)
        return 1 if "--require" in arguments else 0
    return 0


def _lines_of(name: str) -> list[str]:
    return built.source_of(name).read_text().splitlines(keepends=True)


def _meanings_of(node: ast.stmt, module: str) -> dict[str, str]:
    """The names that a statement of a module gives a meaning to, each with whose it is."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name: module}
    if isinstance(node, ast.Import | ast.ImportFrom):
        of = (getattr(node, "module", None) or "") + "."
        return {alias.asname or alias.name: of + alias.name for alias in node.names}
    stored = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)]
    return {name.id: module for name in stored}


def _run(name: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{name}: {command[0]} took longer than {COMPILE_SECONDS_MAX:.0f} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BuildError(f"{name}: {shlex.join(command[:3])} says: {lines[-1] if lines else done.returncode}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
