"""A compiled kernel is used only if it was made from the source that is here, for this kind of machine."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import build_kernels
from store.compiled import built, loading

KERNEL = "small_kernel"
SOURCE = '''# cython: boundscheck=True
"""A kernel."""
import cython


def double(number: cython.longlong) -> cython.longlong:
    """Twice."""
    return 2 * number if cython.compiled else 2 * number + 1000
'''


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The source of a kernel in a root of its own; uncompiled it answers 1000 more."""
    monkeypatch.setattr(built, "_ROOT", tmp_path)
    monkeypatch.setattr(loading, "_kernels", {})
    monkeypatch.setattr(loading, "_mode", loading.AUTO)
    monkeypatch.setattr(loading, "_is_missing_said", False)
    path = tmp_path / f"{KERNEL}.py"
    path.write_text(SOURCE)
    built.is_cython.cache_clear()
    yield path
    built.is_cython.cache_clear()


def build() -> Path:
    try:
        return build_kernels.build(KERNEL, build_kernels.compiler())
    except build_kernels.BuildError as error:
        pytest.skip(str(error))


def test_a_kernel_is_served_compiled_until_its_source_changes(source: Path) -> None:
    first = build()
    kernel = loading.load(KERNEL)
    assert kernel is not None
    assert (kernel.double(21), built.load_source(KERNEL).double(21)) == (42, 1042)

    source.write_text(SOURCE + "\n# another\n")
    loading._kernels.clear()

    assert loading.load(KERNEL) is None, "the old file is not served"
    assert first.exists()
    assert [build()] == list(source.parent.glob("*.so")), "the old file is removed with the next build"
    assert loading.load(KERNEL) is None, "what was not there at first is not looked for again"


def test_a_file_for_another_machine_has_another_name(source: Path) -> None:
    names = {
        built.binary_of(KERNEL, machine, suffix) for machine in ("x86_64", "aarch64") for suffix in (".abi3.so", ".so")
    }
    assert len(names) == 4
    assert {path.parent for path in names} == {source.parent}


def test_a_kernel_that_is_not_compiled_is_said_once_with_what_to_install(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.with_name("other_kernel.py").write_text(SOURCE)
    with caplog.at_level(logging.WARNING):
        assert [loading.load(name) for name in (KERNEL, KERNEL, "other_kernel")] == [None, None, None]

    (line,) = [record.getMessage() for record in caplog.records]
    assert "ziglang" in line
    assert "python -m deploy.build_kernels" in line


def test_a_file_that_the_system_refuses_leaves_the_work_to_plain_code(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    built.binary_of(KERNEL).write_bytes(b"no program")
    with caplog.at_level(logging.WARNING):
        assert loading.load(KERNEL) is None
    assert "cannot be loaded" in caplog.text


def test_with_kernels_off_a_compiled_one_is_not_loaded(source: Path) -> None:
    build()
    loading.switch(loading.OFF)
    assert loading.load(KERNEL) is None
    assert loading.load(KERNEL) is None
