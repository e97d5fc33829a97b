"""docs/pipeline.md: its Python runs, its commands are taken, its tables name what there is."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cli.main import PIPELINE_VERBS, _build_app
from pipeline.analytics.analytics import TABLE_NAMES
from pipeline.rebuild.out import MANIFEST_NAME
from pipeline.rocketmq.options import READ_OPTIONS
from pipeline.rocketmq.sink import SINK_OPTIONS
from pipeline.scan import options, schema
from tests.support.command import run_command
from tests.support.object_store import CREDENTIALS, running_object_store

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
PAGE_URI = "s3://bucket/rebuilt?region=eu-west-1"
JOBS = re.search(r"## The jobs\n\n```sh\n(.*?)```", TEXT, re.DOTALL)


def _section(title: str) -> str:
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


def _first_cells(section: str, head: str) -> set[str]:
    """The names in code of the first column, of all tables whose first head is this."""
    names: set[str] = set()
    for table in re.findall(rf"^\| {head} \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", section, re.MULTILINE):
        for line in table.splitlines():
            names |= set(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return names


def test_the_python_of_the_page_runs(
    spark: SparkSession, broker_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "example"}
    printed = []
    for block in blocks:
        text = block.replace("run/store", str(broker_store)).replace("'Orders'", "'b_order'")
        exec(text, names)
        printed.append(capsys.readouterr().out)
    assert "b_order" in printed[0]
    assert "delay" in printed[1]
    assert "b_order" in printed[1]


def test_tables_of_options_and_columns_are_complete() -> None:
    files, gateway = _section('format("commitlog"): the files'), _section('format("rocketmq"): a gateway')
    assert _first_cells(files, "option") == set(options._PARSERS)
    assert _first_cells(files, "column") == set(schema.native_schema().fieldNames())
    assert _first_cells(gateway, "option") == {*READ_OPTIONS, *SINK_OPTIONS}
    assert _first_cells(_section("The jobs"), "job") == set(PIPELINE_VERBS)
    assert _first_cells(_section("The jobs"), "table") == set(TABLE_NAMES)


def test_defaults_are_those_of_the_code() -> None:
    files = _section('format("commitlog"): the files')
    given = options.ScanOptions(Path("x"))
    assert f"| `splitBytes` | `{given.split_bytes >> 20}m` |" in files
    assert f"| `batchRows` | `{given.batch_rows}` |" in files
    assert f"| `verify` | `{given.verify}` |" in files
    assert f"| `corrupt` | `{given.corrupt}` |" in files


@pytest.mark.parametrize("line", JOBS[1].splitlines() if JOBS else [])
def test_the_commands_of_the_page_are_taken(line: str) -> None:
    program, group, verb, *arguments = shlex.split(line)
    assert (program, group) == ("reput", "pipeline")
    flags = [argument for argument in arguments if argument.startswith("--")]
    shown = CliRunner().invoke(_build_app((), {"pipeline": (verb,)}), ["pipeline", verb, "--help"], terminal_width=200)
    assert shown.exit_code == 0, shown.output
    for flag in flags:
        assert flag in shown.output, flag


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_run(
    spark: SparkSession, broker_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand there, on a store of RocketMQ's and an object store of the test's.

    The first has a process and a session of its own, as a user's; the others run here, on the session that is warm.
    """
    assert JOBS is not None
    for name, value in CREDENTIALS.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with running_object_store() as objects:
        objects.fs.create_dir("bucket")
        text = JOBS[1].replace("/tmp/", f"{tmp_path}/").replace("run/store", str(broker_store))
        assert PAGE_URI in text
        for number, line in enumerate(text.replace(PAGE_URI, objects.uri("bucket/rebuilt")).splitlines()):
            arguments = shlex.split(line.replace("Orders", "b_order").replace("order-1001", "k1"))[1:]
            if number == 0:
                command = [sys.executable, "-m", "cli.main", *arguments, "--master", "local[1]"]
                ended = subprocess.run(command, cwd=ROOT, env=os.environ | CREDENTIALS, capture_output=True, text=True)
            else:
                ended = run_command(*arguments, **CREDENTIALS)
            # An old broker's records have no `__CRC32#`, which is no finding that needs anybody to do anything.
            assert ended.returncode == 0, f"{line}\n{ended.stdout[-1000:]}{ended.stderr[-3000:]}"
            if arguments[1] not in ("query", "ship"):
                assert json.loads(ended.stdout)["job"] == arguments[1]
        assert MANIFEST_NAME in objects.sizes("bucket/rebuilt")
