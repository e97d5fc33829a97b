"""Compiled clients of our own API, in `compiled/`: Java with generated stubs, Go with raw bytes.

They are built with the generated code and the libraries of the documented programs (docs/clients), which the harness builds
first; what is made is kept in `.tools/compiled-clients`.
"""

import functools
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

from benchmarks import processes
from benchmarks.row import SkippedError
from benchmarks.sides import rocketmq_side
from tests.clients import documented
from tests.clients.programs import build_once, home_of
from tests.rocketmq import real_broker

SOURCES = pathlib.Path(__file__).parents[1] / "compiled"
# Shared with RocketMQ's drivers, so that both sides are timed by the same code.
SHARED = rocketmq_side.JAVA_SOURCES / "QueryTiming.java"
HOME = real_broker.TOOLS.with_name("compiled-clients")
BUILD_SECONDS_MAX = 300.0
RUN_SECONDS_MAX = 300.0
HEAP = "-Xmx1g"
REASON_LENGTH_MAX = 300


def prepare(language: str, say: Callable[[str], None]) -> str:
    """Builds the clients of a language before anything is measured; the reason when they cannot be built here, or nothing."""
    say(f"building the compiled clients, {language}")
    try:
        _command(language)
    except SkippedError as error:
        return str(error)
    return ""


def run(language: str, program: str, *arguments: object) -> dict[str, Any]:
    """Runs a client to its end; its line of JSON.

    Args:
        language: `java` or `go`.
        program: its main class, or its source without `.go`.
        arguments: of the program.

    Raises:
        SkippedError: it cannot be built here.
        RuntimeError: it failed.
    """
    command = [*_command(language)]
    command[-1] += program
    return rocketmq_side.json_line(processes.run([*command, *map(str, arguments)], RUN_SECONDS_MAX))


@functools.cache
def _command(language: str) -> tuple[str, ...]:
    """The command to whose last word the name of a program is added."""
    missing = documented.why_unavailable(language)
    if missing:
        raise SkippedError(f"the {language} client {missing}")
    try:
        stubs = documented.built(language)
    except subprocess.CalledProcessError as error:
        raise SkippedError(f"the {language} client's stubs cannot be built: {error}"[:REASON_LENGTH_MAX]) from None
    return {"java": _java, "go": _go}[language](stubs, HOME / language)


def _java(stubs: pathlib.Path, parent: pathlib.Path) -> tuple[str, ...]:
    sources = [*sorted((SOURCES / "java").glob("*.java")), SHARED]
    home = _home(parent, stubs, sources)
    jars = f"{stubs / 'target/classes'}:{stubs / 'target/dependency'}/*"
    javac = ["javac", "-encoding", "UTF-8", "-nowarn", "-cp", jars, "-d", str(home / "classes"), *map(str, sources)]
    build_once(home, lambda: processes.run(javac, BUILD_SECONDS_MAX))
    return ("java", HEAP, "-cp", f"{home / 'classes'}:{jars}", "")


def _go(stubs: pathlib.Path, parent: pathlib.Path) -> tuple[str, ...]:
    sources = sorted((SOURCES / "go").glob("*.go"))
    home = _home(parent, stubs, sources)
    # In the module of the documented program: its generated code and its pinned libraries.
    command = ["go", "build", "-C", str(stubs), "-o", f"{home}/", *map(str, sources)]
    build_once(home, lambda: processes.run(command, BUILD_SECONDS_MAX))
    return (f"{home}/",)


def _home(parent: pathlib.Path, stubs: pathlib.Path, sources: list[pathlib.Path]) -> pathlib.Path:
    """Where clients of these sources and stubs are built; the place of the stubs names what they are made of."""
    return home_of(parent, str(stubs).encode() + b"".join(path.read_bytes() for path in sources))
