"""The client library of one release at the gateway of another: the same program (client_program.py) runs with each."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.releases.left_work import SETTINGS
from tests.support.releases import COMMITS, ROOT, ReleaseStack, environ_of, tree_of
from tests.support.stack import hosted_stack

pytestmark = [pytest.mark.life, pytest.mark.timeout(300)]

PROGRAM = pathlib.Path(__file__).with_name("client_program.py")
SECONDS_MAX = 200.0


def printed_by(gateway: str, topic: str, environ: Mapping[str, str]) -> str:
    ran = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), gateway, topic],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.parametrize("version", COMMITS)
def test_a_program_with_the_library_of_a_release_works_at_today_s_gateway(version: str, tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store", settings=SETTINGS) as today:
        printed = printed_by(today.addresses["gateway"], "Older", environ_of(tree_of(version)))
    assert printed == "consumed True\npulled True\n"


@pytest.mark.parametrize("version", COMMITS)
def test_a_program_with_today_s_library_works_at_the_gateway_of_a_release(version: str, tmp_path: pathlib.Path) -> None:
    old = ReleaseStack(version, tmp_path / "store", settings=SETTINGS)
    try:
        printed = printed_by(old.addresses["gateway"], "Newer", environ_of(ROOT))
    finally:
        assert old.stop() == 0
    assert printed == "consumed True\npulled True\n"
