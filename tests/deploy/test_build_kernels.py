import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from deploy import build_kernels
from store.compiled import built

ROOT = Path(__file__).parents[2]


def test_all_kernels_of_cython_are_found_and_those_of_numba_are_not() -> None:
    names = build_kernels.kernel_names()
    assert {"store.derive.dispatch_kernel", "commitlog_svc.append.recent_keys_kernel"} <= set(names)
    assert "store.walk.log_walk_kernel" not in names


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
    assert not list(built.source_of(name).parent.glob(".index_fill_kernel-*"))
