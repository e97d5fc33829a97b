"""The programs of docs/clients, built by the commands of their pages, as these stand there.

They are built in `.tools/documented-clients` of the project, which `.ci/run` shares between the clones of a machine, in a copy
of what the commands need; libraries come from the package registries, pinned by the files beside the programs.
"""

import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from tests.clients.programs import build_once, home_of
from tests.rocketmq import real_broker
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = real_broker.TOOLS.with_name("documented-clients")
TOOLS = {"go": ("go",), "java": ("javac", "mvn"), "node": ("node", "npm"), "rust": ("cargo",)}
BUILD_SECONDS_MAX = 900
# Built for a test: soon rather than fast, and not to be built again.
SOON = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}
# Half a gigabyte that only a second build would need.
LEFT_OVER = ("docs/clients/rust/target/debug/deps", "docs/clients/rust/target/debug/build")


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
        ["git", "ls-files", "buf.yaml", "protos/*.proto", "protos/*.binpb", f"docs/clients/{language}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    commands = commands_of(language)[:-1]
    content = b"".join((ROOT / name).read_bytes() for name in listed) + "\n".join(commands).encode()
    home = home_of(HOME / language, content)

    def build() -> None:
        for name in listed:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, home / name)
        _run("\n".join(["set -e", *commands]), home, SOON, BUILD_SECONDS_MAX).check_returncode()
        for name in LEFT_OVER:
            shutil.rmtree(home / name, ignore_errors=True)

    build_once(home, build)
    return home / "docs/clients" / language


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
