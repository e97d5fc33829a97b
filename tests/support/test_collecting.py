"""Each process of a run rewrites another part of the test modules."""

import sys
from pathlib import Path

import pytest

from tests.support.collecting import import_part, is_rewritten


def test_all_processes_of_a_fresh_clone_rewrote_every_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tmp_path / "zz_parts"
    (parts / "__pycache__").mkdir(parents=True)
    for name in ("__init__", "test_a", "test_c", "test_e", "support"):
        (parts / f"{name}.py").write_text("")
    (parts / "test_b.py").write_text("import pytest\npytest.skip('nothing here', allow_module_level=True)\n")
    (parts / "test_d.py").write_text("1 / 0\n")
    (parts / "__pycache__" / f"test_e.cpython-311-pytest-{pytest.__version__}.pyc").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def imported_by(begin: int, step: int) -> set[str]:
        before = set(sys.modules)
        import_part(tmp_path, ["zz_parts"], begin, step)
        made = set(sys.modules) - before
        for name in made:
            monkeypatch.delitem(sys.modules, name)
        return {name for name in made if "test_" in name}

    assert imported_by(0, 2) == {"zz_parts.test_a", "zz_parts.test_c"}, "test_e is rewritten"
    assert imported_by(1, 2) == set(), "what raises is left to the collection"


def test_this_pytest_names_what_it_has_rewritten_as_expected() -> None:
    assert is_rewritten(Path(__file__)) or sys.dont_write_bytecode
