"""docs/runbook.md runs: each section's commands, on a store in the state that it is about, print what the page shows."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import yaml

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.pipeline.spark_home import spark_environment
from tests.support.ports import free_port
from tests.support.stack import NO_REMOTING, Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "runbook.md").read_text()
STRACE = shutil.which("strace")
SECTION_SECONDS_MAX = 480  # a hang; on full cores four starts of Spark take three minutes
SMALL = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536",
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "20000",
}
# Half of it is what others may write to this disk, or remove from it, meanwhile: images of containers have gigabytes.
SPARE_BYTES_MAX = 16 << 30
MARK = "\x1e"

# A state: what is running while the commands do (a gateway's address), and what the environment has besides.
Scene = tuple[str, dict[str, str]]


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z ]", "", heading.lower()).replace(" ", "-")


def steps(section: str) -> list[tuple[str, list[str]]]:
    """Commands, each with the lines that it shall print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def shows(lines: list[str], printed: str) -> bool:
    """Whether the page's lines are what was printed; `...` is anything, within a line or for lines."""
    pieces = [
        r"[\s\S]*" if line.strip() == "..." else r"[^\n]*".join(map(re.escape, re.split(r" ?\.\.\. ?", line.strip())))
        for line in lines
    ]
    pattern = r"\s*".join(pieces).replace(r"\ ", r"\s+")
    return re.fullmatch(rf"\s*{pattern}\s*", printed) is not None


def orders(stack: Stack, *numbers: int, topic: str = "Orders") -> list[message_pb2.AppendResult]:
    messages = [new_message(topic, b"hello%d" % n, keys=[f"order-{n}"], queue_id=0) for n in numbers]
    request = pb.AppendMessagesRequest(messages=messages, flush=message_pb2.FLUSH_MODE_SYNC)
    return list(stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results)


def make_store(root: pathlib.Path) -> list[message_pb2.AppendResult]:
    with running_stack(root / "store", settings=SMALL) as stack:
        receipts = orders(stack, 1, 2, 3)
        stack.wait_until_built()
    return receipts


@contextlib.contextmanager
def a_running_store(root: pathlib.Path) -> Iterator[Scene]:
    with running_stack(root / "store", settings=SMALL) as stack:
        orders(stack, 1, 2, 3)
        stack.wait_until_built()
        yield stack.addresses["gateway"], {}


@contextlib.contextmanager
def a_full_disk(root: pathlib.Path) -> Iterator[Scene]:
    make_store(root)
    disk = os.statvfs(root)
    free_bytes = disk.f_bavail * disk.f_frsize
    spare_bytes = min(SPARE_BYTES_MAX, free_bytes // 4)
    with open(root / "spare", "wb") as spare:
        os.posix_fallocate(spare.fileno(), 0, spare_bytes)
    settings = {
        "REPUT_COMMITLOG_DISK_FULL_RATIO_PERCENT": "1",
        "REPUT_COMMITLOG_DISK_FULL_FREE_BYTES": str(free_bytes - spare_bytes // 2),
    }
    with running_stack(root / "store", settings={**SMALL, **settings}) as stack:
        stack.wait_until_built()
        yield stack.addresses["gateway"], {}


@contextlib.contextmanager
def a_lagging_builder(root: pathlib.Path) -> Iterator[Scene]:
    with running_stack(root / "store", settings=SMALL) as stack:
        orders(stack, 1)
        stack.wait_until_built()
        (root / "store" / "consumequeue" / "Blocked").symlink_to("/proc/sys/fs")
        orders(stack, 1, topic="Blocked")
        yield stack.addresses["gateway"], {}


@contextlib.contextmanager
def a_corrupt_byte(root: pathlib.Path) -> Iterator[Scene]:
    make_store(root)
    with running_stack(root / "store", settings=SMALL) as stack:  # the file is full: nothing more is written to it
        messages = [new_message("Later", b"x" * 1_000) for _ in range(80)]
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    shutil.copytree(root / "store", root / "copy")
    log = root / "store" / "commitlog" / f"{0:020}"
    with open(log, "r+b") as file:
        file.seek(log.read_bytes().index(b"hello2"))
        file.write(b"jello2")
    yield "", {"BEFORE": "reput serve --store store --port-file ports.json 2> serve.log & "
               "until [ -e ports.json ]; do sleep 0.1; done"}  # fmt: skip


@contextlib.contextmanager
def a_stopped_store(root: pathlib.Path) -> Iterator[Scene]:
    make_store(root)
    yield "", {}


@contextlib.contextmanager
def a_served_store(root: pathlib.Path) -> Iterator[Scene]:
    make_store(root)
    yield "", {"BEFORE": "reput serve --store store --port-file ports.json 2> serve.log & "
               "until [ -e ports.json ]; do sleep 0.1; done"}  # fmt: skip


def a_stuck(module: str) -> Callable[[pathlib.Path], contextlib.AbstractContextManager[Scene]]:
    """A store that is served while one of its services hangs."""

    @contextlib.contextmanager
    def scene(root: pathlib.Path) -> Iterator[Scene]:
        make_store(root)
        yield "", {"BEFORE": "reput serve --followers-apart --store store --port-file ports.json 2> serve.log & "
                   f"until [ -e ports.json ]; do sleep 0.1; done; kill -STOP $(pgrep -P $! -f {module})"}  # fmt: skip

    return scene


@contextlib.contextmanager
def a_disk_that_refuses_a_flush(root: pathlib.Path) -> Iterator[Scene]:
    if STRACE is None:
        pytest.skip("needs strace, which makes a disk refuse a flush")
    make_store(root)
    # Once the first service is up, a tool makes the next flushes of its log fail.
    yield "", {"REFUSE_FLUSHES": "1"}


SCENES: dict[str, Callable[[pathlib.Path], contextlib.AbstractContextManager[Scene]]] = {
    "A service is down": a_running_store,
    "The disk is full": a_full_disk,
    "A corrupt byte": a_corrupt_byte,
    "A builder lags": a_lagging_builder,
    "Consumers get nothing": a_stuck("consumer_svc"),
    "Messages come late": a_stuck("schedule_svc"),
    "A lost volume": a_stopped_store,
    "Somebody deleted the volume": a_served_store,
    "Restore from an archive": a_stopped_store,
    "A fenced store": a_disk_that_refuses_a_flush,
    "Queries are slow": a_running_store,
}
SLOW = {"Restore from an archive": [pytest.mark.spark]}
REFUSING = "strace -f -qq -e trace=fdatasync -e inject=fdatasync:error=EIO -o /dev/null -p"


def run(root: pathlib.Path, commands: list[str], scene: Scene) -> list[str]:
    """What each command printed, in one shell, as a person at a terminal has it."""
    address, extra = scene
    tools = root / "bin"
    tools.mkdir()
    (tools / "reput").write_text(f'#!/bin/sh\nexec {sys.executable} -m cli.main "$@"\n')
    (tools / "reput").chmod(0o755)
    own = address or f"127.0.0.1:{free_port()}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    environ |= {**SMALL, **NO_REMOTING, "REPUT_ADDRESS": own, "COLUMNS": "400", "NO_COLOR": "1"}
    environ |= spark_environment()
    environ |= {"PATH": f"{tools}:{environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"}
    if not address:
        environ["REPUT_GATEWAY_ADDRESS"] = own
    lines = ["set -m", extra.get("BEFORE", ":"), "kept=0"]
    is_first = True
    for command in commands:
        lines.append(f"printf '{MARK}'; (exit $kept); {command}\nkept=$?")
        if "REFUSE_FLUSHES" in extra and command.startswith("until") and is_first:
            is_first = False
            lines.append(
                f"{REFUSING} $(pgrep -P $(jobs -p %1) -f commitlog_svc) & "
                "until grep -q 'TracerPid:.*[1-9]' /proc/$(pgrep -P $(jobs -p %1) -f commitlog_svc)/status; do sleep 0.1; done"
            )
    lines.append(f"printf '{MARK}'; kill $(jobs -p) 2> /dev/null; wait")
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=root, env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=SECTION_SECONDS_MAX,
    )  # fmt: skip
    # A terminal would say so, too, and at any time.
    said = re.sub(rf"(?<![^\n{MARK}])\[\d+\][+-]? +(?:Done|Exit \d+|Terminated).*\n", "", done.stdout)
    return said.split(MARK)[1:-1]


@pytest.mark.life
@pytest.mark.parametrize("heading", [pytest.param(name, marks=SLOW.get(name, [])) for name in SCENES])
def test_a_sections_commands_print_what_the_page_shows(heading: str, tmp_path: pathlib.Path) -> None:
    rows = steps(sections()[heading])
    with SCENES[heading](tmp_path) as scene:
        printed = run(tmp_path, [command for command, _ in rows], scene)
    assert len(printed) == len(rows), printed
    for (command, lines), text in zip(rows, printed, strict=True):
        assert shows(lines, text), f"$ {command}\n{text}\n--- the page has:\n" + "\n".join(lines)


def test_every_section_with_commands_is_run_and_every_alert_has_its_section() -> None:
    assert {heading for heading, text in sections().items() if "```console" in text} == set(SCENES)
    rules = yaml.safe_load((ROOT / "deploy" / "alerts" / "reput.rules.yaml").read_text())["groups"][0]["rules"]
    assert {rule["annotations"]["runbook"] for rule in rules} <= {anchor(heading) for heading in sections()}


def test_a_line_of_the_page_matches_only_what_it_says() -> None:
    assert shows(["a ... c", "..."], "a   b c\nmore\n")
    assert shows([], "\n")
    assert not shows(["a ... c"], "a b\nc")
    assert not shows(["clean ..."], "not clean (1 error)")
    assert not shows([], "something")
