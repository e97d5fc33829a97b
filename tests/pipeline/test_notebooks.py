"""docs/notebooks: each code cell runs, and prints what is saved below it. `--rewrite` saves what this run prints."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.stack import hosted_stack

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def _printed(cell: dict[str, Any], names: dict[str, object]) -> list[str]:
    """The lines that a cell prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec("".join(cell["source"]), names)
    return out.getvalue().splitlines(keepends=True)


def run_notebook(path: Path, *, rewrite: bool = False) -> None:
    """Run the code cells one after the other, in one namespace; AssertionError where one prints something else."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "notebook"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells
    for number, cell in enumerate(cells, 1):
        lines = _printed(cell, names)
        if rewrite:
            stream = {"name": "stdout", "output_type": "stream", "text": lines}
            cell["outputs"], cell["execution_count"] = [stream] if lines else [], number
        saved = [line for output in cell["outputs"] for line in output["text"]]
        assert lines == saved, f"{path.name}, code cell {number}"
    if rewrite:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hosted_stack(tmp_path_factory.mktemp("notebooks") / "store") as stack:
        yield stack.addresses["gateway"]


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_what_is_saved_in_it(
    spark: SparkSession,
    broker_store: Path,
    endpoint: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("REPUT_STORE", str(broker_store))
    monkeypatch.setenv("REPUT_ENDPOINT", endpoint)
    run_notebook(FOLDER / name, rewrite=request.config.getoption("--rewrite"))


def test_a_cell_that_prints_something_else_is_named(tmp_path: Path) -> None:
    saved = {"name": "stdout", "output_type": "stream", "text": ["1\n"]}
    cells = [{"cell_type": "code", "source": ["print(2)"], "outputs": [saved]}]
    path = tmp_path / "wrong.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    with pytest.raises(AssertionError, match=r"wrong\.ipynb, code cell 1"):
        run_notebook(path)


def test_every_notebook_is_listed_in_the_docs() -> None:
    text = (FOLDER.parent / "pipeline.md").read_text(encoding="utf-8")
    assert NAMES
    assert [name for name in NAMES if f"(notebooks/{name})" not in text] == []
