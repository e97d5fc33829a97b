"""tools/compile_image.py: byte code is made once."""

import compileall
import os
import py_compile
from pathlib import Path

import pytest

from tools.compile_image import Compiled

UNCHECKED, TIMESTAMP = py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.TIMESTAMP


def compile_all(folder: Path, mode: py_compile.PycInvalidationMode) -> None:
    compileall.compile_dir(str(folder), rx=Compiled(), force=True, quiet=2, invalidation_mode=mode)  # type: ignore[arg-type]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text("a = 1\n")
    return path


def test_what_was_compiled_before_is_not_compiled_again(module: Path) -> None:
    compile_all(module.parent, UNCHECKED)
    (made,) = (module.parent / "__pycache__").iterdir()
    before = made.stat().st_mtime_ns, made.stat().st_ino

    compile_all(module.parent, UNCHECKED)

    assert (made.stat().st_mtime_ns, made.stat().st_ino) == before


def test_a_newer_source_is_compiled_again(module: Path) -> None:
    compile_all(module.parent, UNCHECKED)
    (made,) = (module.parent / "__pycache__").iterdir()
    os.utime(module, ns=(made.stat().st_mtime_ns + 1, made.stat().st_mtime_ns + 1))

    assert not Compiled().search(str(module))


def test_byte_code_that_is_compared_with_its_source_is_replaced(module: Path) -> None:
    compile_all(module.parent, TIMESTAMP)

    assert not Compiled().search(str(module))
    compile_all(module.parent, UNCHECKED)
    assert Compiled().search(str(module))
