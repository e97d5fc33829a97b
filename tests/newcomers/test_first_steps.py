"""docs/first-steps.md: each way in, done as it stands there in a clean checkout, with the output that the page shows."""

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.newcomers.paths import SERVES, Newcomer, normal, sections
from tests.support.fixture_stores import unpack_store

NEEDED = ("grpcurl", "make", "openssl")
MISSING = [tool for tool in NEEDED if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.newcomers,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}"),
]


@pytest.mark.parametrize("title", sections())
def test_a_way_in_works_as_the_page_says(title: str, tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    unpack_store("broker", newcomer.home / "copied-store")
    with contextlib.ExitStack() as running:
        for block in sections()[title]:
            if block.script.startswith(SERVES):
                running.enter_context(newcomer.serving(block.script))
                continue
            done = newcomer.do(block.script)
            if block.shown is None:
                assert done.returncode == 0, done.stderr
            else:
                # Remarks beside an answer, such as Spark's about its logging, are left out of the page.
                said = done.stdout if done.returncode == 0 else done.stdout + done.stderr
                assert normal(said) == normal(block.shown), block.script


def test_every_way_in_has_commands_whose_output_is_shown() -> None:
    assert len(sections()) == 6
    for title, blocks in sections().items():
        assert any(block.shown for block in blocks), title
