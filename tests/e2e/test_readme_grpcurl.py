"""The README's grpcurl lines run as they are written; only the port is the test's own."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.stack import new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
GRPCURL = os.environ.get("GRPCURL") or shutil.which("grpcurl")

pytestmark = [
    pytest.mark.grpcurl,
    pytest.mark.skipif(GRPCURL is None, reason="needs grpcurl (a Go module) on PATH or in GRPCURL"),
]


def test_the_grpcurl_lines_of_the_readme_run(tmp_path: pathlib.Path) -> None:
    """Each line exits 0; describe shows comments; the query finds what was appended."""
    lines = re.findall(r"^grpcurl .*$", README.read_text(), re.MULTILINE)
    assert len(lines) >= 6
    with running_stack(tmp_path / "store") as stack:
        request = pb.AppendMessagesRequest(messages=[new_message("Orders", b"hello", keys=["order-1001"], queue_id=0)])
        stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
        printed = {}
        for line in lines:
            command = shlex.split(line.replace("127.0.0.1:8081", stack.addresses["gateway"]))
            done = subprocess.run([str(GRPCURL), *command[1:]], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            printed[line] = done.stdout

    def of(word: str) -> str:
        return next(text for line, text in printed.items() if word in line)

    assert "reput.gateway.v1.GatewayService" in of(" list")
    assert "newest first" in of(" describe "), "comments come through reflection"
    assert '"order-1001"' in of("/QueryMessageByKey")
    assert "COMPLETENESS_COMPLETE" in of("/QueryMessageByKey")
    assert "SERVING" in of("Health/Check")
