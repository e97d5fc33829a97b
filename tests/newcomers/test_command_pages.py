"""The commands of the README and of docs/command.md, run as they stand there, on the sample messages of `make run`."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^(?:\.venv/bin/)?reput (.*?)(?:\s{2,}#.*)?$", re.MULTILINE)
# Those that are about the shell or another installation.
LEFT_OUT = ("--install-completion", "context")
# A command of the pages that goes on from what another one did before.
GOES_ON_FROM = {"lag": "consume"}


def commands_of(page: str, heading: str) -> list[str]:
    """The `reput` lines in the code blocks of a section; of all sections when no heading is given."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] if heading else text
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [line for block in blocks for line in COMMAND.findall(block)]
    return [line for line in lines if not line.startswith(LEFT_OUT)]


COMMANDS = commands_of("README.md", "Ask") + [
    line for line in commands_of("docs/command.md", "") if "--context" not in line
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("newcomer") / "store") as stack:
        loaded = run_command(
            "load", str(ROOT / "cli/samples/messages.jsonl"), "--sync", "--address", stack.addresses["gateway"]
        )
        assert loaded.returncode == 0, loaded.stderr
        stack.wait_until_built()
        yield stack


@pytest.fixture(scope="module")
def run_line(stack: HostedStack) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a line of the pages, once, after the one that it goes on from."""
    done: dict[str, subprocess.CompletedProcess[str]] = {}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        arguments = shlex.split(line)
        if line not in done:
            if before := GOES_ON_FROM.get(arguments[0]):
                assert run(next(each for each in COMMANDS if each.startswith(before))).returncode == 0
            done[line] = run_command(*arguments, **_address(stack))
        return done[line]

    return run


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_pages_works_as_it_stands(
    stack: HostedStack, run_line: Callable[[str], subprocess.CompletedProcess[str]], line: str, tmp_path: Path
) -> None:
    arguments = shlex.split(line)
    if "-f" in arguments and arguments[0] == "tail":
        assert followed(stack, arguments, tmp_path / "shown") == 0
        return
    done = run_line(line)

    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Usage" not in done.stderr


def followed(stack: HostedStack, arguments: list[str], shown: Path) -> int:
    """The exit code of a command that goes on until Ctrl-C, which comes once it follows."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    environ["REPUT_ADDRESS"] = stack.addresses["gateway"]
    # A filter of the page may let none of the samples pass.
    topic = next(each for each in arguments[1:] if not each.startswith("-"))
    tags = [arguments[place + 1] for place, each in enumerate(arguments) if each == "--tag"]

    def something_is_shown() -> bool:
        body = "an order on its way"
        run_command("send", "-t", topic, "-b", body, *(["--tag", tags[0]] if tags else []), **_address(stack))
        return bool(shown.read_text())

    with shown.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "cli.main", *arguments], cwd=ROOT, env=environ, stdout=out)
    try:
        wait_until(something_is_shown, "a message")
        process.send_signal(signal.SIGINT)
        return process.wait(WAIT_SECONDS_MAX)
    finally:
        process.kill()


def _address(stack: HostedStack) -> dict[str, str]:
    return {"REPUT_ADDRESS": stack.addresses["gateway"]}
