"""The kernels' machine code: what is read from its file, and what its entry points refuse."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store.compiled import machine_code

ROOT = Path(__file__).parents[3]
KERNEL = "store.compiled.crc32_kernel"


def run(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "protos")))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The machine code of one kernel, made by another process: in this one kernels may be loaded already."""
    if machine_code.file_name() is None:
        pytest.skip("machine code is made for Linux on x86-64 only")
    path = tmp_path_factory.mktemp("code") / "code"
    run(
        f"import pathlib, sys; from store.compiled import exporting; exporting.export([{KERNEL!r}], pathlib.Path(sys.argv[1]))",
        str(path),
    )
    return path


@pytest.fixture(scope="module")
def crc32(file: Path) -> Callable[..., Any]:
    found = machine_code.read(file)
    assert found is not None
    function = found.function(f"{KERNEL}.crc32", nogil=True)
    assert function is not None
    return function


def array(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


def test_a_kernel_from_the_file_does_what_it_does_and_numba_is_not_imported(file: Path) -> None:
    printed = run(
        "import pathlib, sys, numpy\n"
        "from store.compiled import machine_code\n"
        "found = machine_code.read(pathlib.Path(sys.argv[1])); machine_code.find = lambda: found\n"
        "from store.compiled import crc32_kernel, loading\n"
        "kernel = loading.load('store.compiled.crc32_kernel')\n"
        "print(kernel.crc32(numpy.arange(200, dtype=numpy.uint8), 3, 190), 'numba' in sys.modules)",
        str(file),
    )
    assert printed == f"{zlib.crc32(bytes(range(3, 190)))} False"


def test_the_gil_may_be_held_or_not(file: Path) -> None:
    found = machine_code.read(file)
    assert found is not None
    for nogil in (True, False):
        function = found.function(f"{KERNEL}.crc32", nogil=nogil)
        assert function is not None
        assert function(array(b"hello" * 40), 0, 200) == zlib.crc32(b"hello" * 40)


def test_what_only_kernels_call_has_no_entry(file: Path) -> None:
    found = machine_code.read(file)
    assert found is not None
    assert found.has(KERNEL)
    assert found.function(f"{KERNEL}._finish", nogil=True) is None


@pytest.mark.parametrize(
    "given",
    [
        b"hello" * 20,
        None,
        np.zeros(100, dtype=np.int8),
        np.zeros(100, dtype=np.int64),
        np.zeros((10, 10), dtype=np.uint8),
        np.zeros(200, dtype=np.uint8)[::2],
        np.ma.zeros(100, dtype=np.uint8),
    ],
    ids=["bytes", "None", "other sign", "other width", "two dimensions", "gaps", "a subclass"],
)
def test_an_argument_that_the_kernel_was_not_compiled_for_is_refused(crc32: Callable[..., Any], given: Any) -> None:
    with pytest.raises(TypeError):
        crc32(given, 0, 80)


def test_a_file_is_not_used_once_a_module_that_it_was_made_from_has_changed(file: Path, tmp_path: Path) -> None:
    head, _, rest = file.read_bytes().partition(b"\n")
    header = json.loads(head)
    assert {"store/compiled/crc32_kernel.py", "store/compiled/crc32_fold.py", "store/compiled/compiling.py"} <= set(
        header["sources"]
    )
    changed = head.replace(header["sources"]["store/compiled/crc32_fold.py"].encode(), b"0" * 64)

    (tmp_path / "code").write_bytes(changed + b"\n" + rest)

    assert machine_code.read(tmp_path / "code") is None
    assert machine_code.read(tmp_path / "no such file") is None


@pytest.mark.parametrize("flipped", [-1, -1000])
def test_a_damaged_file_is_not_run(file: Path, tmp_path: Path, flipped: int) -> None:
    data = bytearray(file.read_bytes())
    data[flipped] ^= 1
    (tmp_path / "code").write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        machine_code.read(tmp_path / "code")


def test_another_setting_of_numba_or_another_processor_has_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_code.file_name.cache_clear()
    before = machine_code.file_name()
    machine_code.file_name.cache_clear()
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    checked = machine_code.file_name()
    machine_code.file_name.cache_clear()
    monkeypatch.delenv("NUMBA_BOUNDSCHECK")
    monkeypatch.setattr(machine_code, "_CPU_FACTS", ("vendor_id",))
    other = machine_code.file_name()
    machine_code.file_name.cache_clear()

    assert len({before, checked, other}) == 3 or before is None


def test_code_that_needs_a_linker_is_refused() -> None:
    printed = run(
        "from llvmlite import ir\n"
        "from numba.core.registry import cpu_target\n"
        "from store.compiled import exporting\n"
        "library = exporting._Codegen('test').create_library('test')\n"
        "module = cpu_target.target_context.create_module('test')\n"
        "kind = ir.FunctionType(ir.IntType(64), [])\n"
        "builder = ir.IRBuilder(ir.Function(module, kind, 'entry0').append_basic_block())\n"
        "builder.ret(builder.call(ir.Function(module, kind, 'elsewhere'), []))\n"
        "from numba.core.compiler_lock import global_compiler_lock\n"
        "with global_compiler_lock:\n"
        "    library.add_ir_module(module); data = library.emit_native_object()\n"
        "try: exporting.link(data)\n"
        "except exporting.ExportError as error: print(error)"
    )
    assert printed.endswith("to elsewhere needs a linker")
