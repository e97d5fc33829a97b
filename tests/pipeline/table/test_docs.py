"""docs/tables.md: its commands and its Python run as they stand there, on the sample messages of `make run`."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.archive import archive as archive_job
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path / "store") as stack:
        loaded = run_command(
            "load", str(ROOT / "cli/samples/messages.jsonl"), "--sync", "--address", stack.addresses["gateway"]
        )
        assert loaded.returncode == 0, loaded.stderr
        stack.wait_until_built()
        yield stack


def test_the_blocks_of_the_page_run_one_after_the_other(
    stack: HostedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPUT_ADDRESS", stack.addresses["gateway"])
    text = TEXT.replace("/tmp/", f"{tmp_path}/").replace("run/store", str(tmp_path / "store"))
    blocks = BLOCK.findall(text)
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "sh"]
    for kind, block in blocks:
        if kind == "python":
            # pyiceberg read the environment when it was imported; a person's Python starts behind the exports.
            monkeypatch.setattr(
                "pyiceberg.catalog._ENV_CONFIG", __import__("pyiceberg.utils.config").utils.config.Config()
            )
            exec(block, {"__name__": "example"})
            assert "order-1001" in capsys.readouterr().out
            continue
        for line in block.replace("\\\n", " ").splitlines():
            _run(shlex.split(line), monkeypatch)


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "mkdir":
        os.makedirs(words[-1])
    elif words[0] == "export":
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
    elif words[1:3] == ["pipeline", "archive"]:  # it starts Spark, as tests/pipeline/test_docs.py does with this line
        archive_job.run(None, words[4], words[6], include_active=True)
    else:
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", __import__("pyiceberg.utils.config").utils.config.Config())
        done = run_command(*words[1:])
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
