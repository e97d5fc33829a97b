"""docs/api: every RPC that clients call has its lines, and they run on the sample messages with grpcurl and with `buf curl`."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/api/gateway.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (\w+)\n.*?```sh\n(.*?)```", re.MULTILINE | re.DOTALL)
SCRIPTS = dict(SECTION.findall(PAGE))
# They name a handle, a request and a member that do not exist.
REFUSED = ("RecallMessage", "EndTransaction", "SendRequest", "GetConsumerRunningInfo")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

pytestmark = pytest.mark.grpcurl
needs_grpcurl = pytest.mark.skipif(shutil.which("grpcurl") is None, reason="needs grpcurl (a Go module) on PATH")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("api") / "store") as stack:
        loaded = run_command(
            "load", str(ROOT / "cli/samples/messages.jsonl"), "--sync", "--address", stack.addresses["gateway"]
        )
        assert loaded.returncode == 0, loaded.stderr
        stack.wait_until_built()
        # What the page asks about before the RPC that makes it.
        assert run_one(stack, commands_of("UpdateConsumerGroup")[0]).returncode == 0
        yield stack


def commands_of(rpc: str) -> list[str]:
    """Its two lines; a request of a stream may be on a line of its own."""
    return re.split(r"\n(?=buf curl)", SCRIPTS[rpc].rstrip("\n"))


def run_one(stack: HostedStack, command: str) -> subprocess.CompletedProcess[str]:
    script = command.replace("127.0.0.1:8081", stack.addresses["gateway"])
    environ = {**os.environ, "PATH": PATH}
    return subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60)


def test_every_rpc_of_the_gateway_has_its_two_lines() -> None:
    proto = (ROOT / "protos/reput/gateway/v1/gateway_service.proto").read_text(encoding="utf-8")

    assert list(SCRIPTS) == re.findall(r"^  rpc (\w+)\(", proto, re.MULTILINE)
    assert {len(commands_of(rpc)) for rpc in SCRIPTS} == {2}


@needs_grpcurl
@pytest.mark.parametrize("rpc", SCRIPTS)
def test_the_lines_of_an_rpc_run_as_they_stand_on_the_page(stack: HostedStack, rpc: str) -> None:
    for command in commands_of(rpc):
        done = run_one(stack, command)
        if rpc in REFUSED:
            assert re.search(
                r"InvalidArgument|NotFound|DeadlineExceeded|invalid_argument|not_found|deadline", done.stderr
            )
        else:
            assert done.returncode == 0, done.stderr
            assert not done.stderr
