import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import build_kernels
from deploy.local import line_on_kernels
from store.compiled import built

ROOT = Path(__file__).parents[2]


def test_all_kernels_are_found_and_each_is_cythons() -> None:
    names = build_kernels.kernel_names()
    assert {"store.derive.dispatch_kernel", "services.local.messages_kernel"} <= set(names)
    assert [name for name in names if not built.is_cython(name)] == []


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python whose headers are there, whether or not this one's are."""
    (tmp_path / "Python.h").write_text("")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})


def test_setup_compiles_what_is_not_compiled_and_says_nothing() -> None:
    try:
        build_kernels.compiler()
    except build_kernels.BuildError as error:
        pytest.skip(str(error))
    done = subprocess.run([sys.executable, "-m", "deploy.build_kernels"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert all(built.binary_of(name).exists() for name in build_kernels.kernel_names())


@pytest.mark.usefixtures("headers")
def test_who_waits_for_the_kernels_sees_how_many_are_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(built, "OPTIONS", ("another file",))
    monkeypatch.setattr(build_kernels, "build", lambda name, command: built.binary_of(name))
    monkeypatch.setattr(build_kernels, "compiler", lambda: ["cc"])
    assert build_kernels.main() == 0
    count = len(build_kernels.kernel_names())
    lines = [f"kernels: {number} of {count} compiled" for number in range(1, count + 1)]
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.usefixtures("headers")
def test_setup_goes_on_without_a_compiler_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(built, "OPTIONS", ("another file",))
    monkeypatch.setenv("CC", "/no/compiler")
    monkeypatch.setitem(sys.modules, "ziglang", None)
    assert build_kernels.main() == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "ziglang" in line


def test_an_image_without_compiled_kernels_was_built_and_nobody_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "OPTIONS", ("another file",))
    monkeypatch.setenv("CC", "/no/compiler")
    monkeypatch.setitem(sys.modules, "ziglang", None)
    assert build_kernels.main(["--require"]) == 1
    assert "deploy.build_kernels --require" in (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


def test_the_start_says_when_nothing_is_compiled_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "OPTIONS", ("another file",))
    line = line_on_kernels({})
    assert line is not None
    assert "plain Python" in line
    assert "pip install ziglang" in line
    assert line_on_kernels({"REPUT_KERNELS": "off"}) is None, "that was asked for"
    assert line_on_kernels({"REPUT_KERNELS": "auto"}) == line


def test_the_start_says_nothing_of_kernels_that_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(built, "binary_of", lambda name: tmp_path)
    assert line_on_kernels({}) is None


@pytest.mark.usefixtures("headers")
def test_the_compiler_of_ziglang_serves_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ziglang.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CC", "/no/compiler")
    assert build_kernels.compiler()[1:] == ["-m", "ziglang", "cc", "-mcpu=baseline"]


def test_setup_goes_on_without_the_headers_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(built, "OPTIONS", ("another file",))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert build_kernels.main() == 0
    assert "Python.h" in capsys.readouterr().err


def test_what_the_compiler_refuses_is_named_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "OPTIONS", ("another file",))
    name = "store.derive.index_fill_kernel"
    with pytest.raises(build_kernels.BuildError, match=name):
        build_kernels.build(name, ["false"])
    assert not built.binary_of(name).exists()
    assert not list(built.source_of(name).parent.glob(".*index_fill_kernel*"))


PART = """# cython: boundscheck=True
\"\"\"A part.\"\"\"
import cython

LIMIT = cython.declare(cython.longlong, 3)


@cython.cfunc
def double(number: cython.longlong) -> cython.longlong:
    return 2 * number
"""
KERNEL = """# cython: boundscheck=True
\"\"\"A kernel.\"\"\"
import cython

from small_part import (
    LIMIT,
    double,
)


def run(number: cython.longlong) -> tuple[int, int, bool]:
    return double(number), LIMIT, cython.compiled
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Writes the sources of `small_part` and `small_kernel`."""
    monkeypatch.setattr(built, "_ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(part: str, kernel: str) -> None:
        (tmp_path / "small_part.py").write_text(part)
        (tmp_path / "small_kernel.py").write_text(kernel)
        built.is_cython.cache_clear()

    write(PART, KERNEL)
    yield write
    built.is_cython.cache_clear()
    sys.modules.pop("small_part", None)


def test_a_kernel_has_its_parts_in_itself_and_uncompiled_imports_them(sources: Callable[[str, str], None]) -> None:
    assert built.load_source("small_kernel").run(21) == (42, 3, False)
    try:
        build_kernels.build("small_kernel", build_kernels.compiler())
    except build_kernels.BuildError as error:
        pytest.skip(str(error))
    kernel = built.load("small_kernel")
    assert kernel is not None
    assert kernel.run(21) == (42, 3, True)

    sources(
        PART.replace("LIMIT = cython.declare(cython.longlong, 3)", "LIMIT = cython.declare(cython.longlong, 4)"), KERNEL
    )
    assert built.load("small_kernel") is None, "what was made from another part is not served"


@pytest.mark.parametrize(
    ("part", "kernel", "why"),
    [
        (PART.replace("=True", "=False"), KERNEL, "another first line"),
        (PART, KERNEL.replace("double,", "double as twice,"), "under another name"),
        (PART, KERNEL + "\n\nLIMIT = 4\n", "give a meaning to LIMIT"),
        (PART, KERNEL + "\n\ndef double(): pass\n", "give a meaning to double"),
        (PART + "\nimport os\n", KERNEL + "\nfrom posix import os\n", "give a meaning to os"),
    ],
)
def test_a_part_that_changes_the_meaning_of_a_kernel_is_refused(
    sources: Callable[[str, str], None], part: str, kernel: str, why: str
) -> None:
    sources(part, kernel)
    with pytest.raises(build_kernels.BuildError, match=why):
        build_kernels.whole_source("small_kernel")
