"""The programs of docs/clients, built by the commands of their pages, as these stand there.

They are built in `.tools/documented-clients` of the project, which `.ci/run` shares between the clones of a machine, in a copy
of what the commands need; libraries come from the package registries, pinned by the files beside the programs. What cargo makes
of them is kept there, too: it takes ten times as long as the program itself. Go keeps its own in its cache.
"""

import contextlib
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tests.clients.programs import build_once, home_of
from tests.rocketmq import real_broker
from tests.support.waiting import WAIT_SECONDS_MAX, one_at_a_time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = real_broker.TOOLS.with_name("documented-clients")
TOOLS = {"go": ("go",), "java": ("javac", "mvn"), "node": ("node", "npm"), "rust": ("cargo",)}
BUILD_SECONDS_MAX = 900
# Built for a test: soon rather than fast, and not to be built again.
SOON = {
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "CARGO_INCREMENTAL": "0",
    "MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
# The contracts that the programs are made of. Rust's reads them from the descriptors, which hold the others as well.
PROTOS = ("protos/google", "protos/reput/gateway", "protos/reput/message")
DESCRIPTORS = "protos/reput/descriptors.binpb"


def why_unavailable(*languages: str) -> str | None:
    """The reason why the programs of languages, or all programs, cannot be built here, or None when they can."""
    missing = [tool for language in languages or TOOLS for tool in TOOLS[language] if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)}" if missing else None


def commands_of(language: str) -> list[str]:
    """The lines of the page's first shell block: those that build, and at last the one that runs."""
    page = (ROOT / f"docs/clients/{language}.md").read_text(encoding="utf-8")
    block = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    assert block is not None
    return block[1].splitlines()


def answer_of_the_page() -> str:
    """What the first page says that each program prints."""
    page = (ROOT / "docs/clients/README.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(appended.*?)```", page, re.DOTALL)
    assert block is not None
    return block[1]


@functools.cache
def built(language: str) -> pathlib.Path:
    """Where the program of a page is built; the last command of the page runs there."""
    listed = subprocess.run(
        ["git", "ls-files", "buf.yaml", *(f"{folder}/*.proto" for folder in PROTOS), f"docs/clients/{language}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    commands = commands_of(language)[:-1]
    content = b"".join((ROOT / name).read_bytes() for name in listed) + "\n".join(commands).encode()
    home = home_of(HOME / language, content)
    place = home / "docs/clients" / language

    def build() -> None:
        for name in (*listed, DESCRIPTORS):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, home / name)
        with _libraries_of_rust(place) if language == "rust" else contextlib.nullcontext():
            _run("\n".join(["set -e", *commands]), home, SOON, BUILD_SECONDS_MAX).check_returncode()

    build_once(home, build)
    return place


@contextlib.contextmanager
def _libraries_of_rust(place: pathlib.Path) -> Iterator[None]:
    """In the block `target` below the program is a directory in which cargo finds the libraries of builds before; then it
    holds the program alone.
    """
    version = subprocess.run(["cargo", "--version"], capture_output=True, check=True).stdout
    kept = home_of(HOME / "rust-libraries", version + (place / "Cargo.lock").read_bytes())
    build_once(kept, lambda: None)  # half a gigabyte each
    target, program = place / "target", kept / "debug/orders"
    shutil.rmtree(target, ignore_errors=True)  # of a build that was cut off
    with one_at_a_time(kept / "building"):
        target.symlink_to(kept.resolve(), target_is_directory=True)
        try:
            yield
        finally:
            target.unlink()
        (target / "debug").mkdir(parents=True)
        shutil.copy2(program, target / "debug")
        for name in kept.glob("debug/*/orders-*"):  # of this build alone: its place is in their names
            shutil.rmtree(name) if name.is_dir() else name.unlink()


def run_program(language: str, address: str, topic: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The page's last command, with an address and a topic of the test's own.

    Args:
        language: whose page.
        address: of a gateway.
        topic: where the program appends and reads.
        environ: variables that are set for it.
    """
    line = commands_of(language)[-1]
    assert line.endswith(" 127.0.0.1:8081 Orders"), line
    command = f"{line.removesuffix(' 127.0.0.1:8081 Orders')} {shlex.join([address, topic])}"
    return _run(command, built(language), environ, WAIT_SECONDS_MAX)


def _run(script: str, cwd: pathlib.Path, environ: dict[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    # `buf` is one of this environment's programs.
    inherited["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=inherited | environ, capture_output=True, text=True, timeout=seconds
    )
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-4000:])
    return done
