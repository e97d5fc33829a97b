import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from store.compiled import loading

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded nothing."""
    monkeypatch.setattr(loading, "_kernels", {})
    monkeypatch.setattr(loading, "_mode", loading.AUTO)


def put(monkeypatch: pytest.MonkeyPatch, name: str, touch: object) -> ModuleType:
    module = ModuleType(name)
    module.touch = touch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def run(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "protos")))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_plain_twin_serves_while_a_kernel_is_loaded_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    touched: list[str] = []

    def touch() -> None:
        assert may_go_on.wait(30)
        touched.append(threading.current_thread().name)

    module = put(monkeypatch, "slow_kernel", touch)
    loading.load_in_background("slow_kernel")
    loading.load_in_background("slow_kernel")
    assert loading.ready("slow_kernel") is None

    may_go_on.set()
    loading.wait("slow_kernel", 30)

    assert loading.ready("slow_kernel") is module
    assert touched == ["kernels"]


def test_waiting_ends_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    put(monkeypatch, "stuck_kernel", lambda: may_go_on.wait(30))
    loading.load_in_background("stuck_kernel")
    loading.wait("stuck_kernel", 0.01)
    assert loading.ready("stuck_kernel") is None
    may_go_on.set()
    loading.wait("stuck_kernel", 30)
    assert loading.ready("stuck_kernel") is not None


def test_a_kernel_that_cannot_be_compiled_is_said_once_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise RuntimeError("no compiler here")

    put(monkeypatch, "broken_kernel", refuse)
    with caplog.at_level(logging.WARNING):
        assert loading.load("broken_kernel") is None
        assert loading.load("broken_kernel") is None
        loading.load_in_background("broken_kernel")

    assert loading.ready("broken_kernel") is None
    assert ["no compiler here" in record.getMessage() for record in caplog.records] == [True]


def test_one_kernel_that_fails_does_not_keep_another_away(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "broken_kernel", None)
    module = put(monkeypatch, "good_kernel", lambda: None)
    loading.load_in_background("broken_kernel", "good_kernel")
    loading.wait("good_kernel", 30)
    assert loading.ready("good_kernel") is module


def test_with_kernels_off_none_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "good_kernel", lambda: None)
    loading.switch(loading.OFF)
    loading.load_in_background("good_kernel")
    loading.wait("good_kernel", 30)
    assert loading.load("good_kernel") is None
    assert loading.ready("good_kernel") is None


def test_the_environment_switches_kernels_off() -> None:
    code = (
        "from store.compiled import loading; import sys\n"
        "print(loading.load('store.compiled.crc32_kernel'), 'numba' in sys.modules)"
    )
    assert run(code, REPUT_KERNELS="off") == "None False"


@pytest.mark.parametrize("module", ["commitlog_svc.commit_log", "store.derive.dispatch_walk", "store.walk.cursor"])
def test_importing_a_user_of_kernels_does_not_import_numba(module: str) -> None:
    assert run(f"import {module}, sys; print('numba' in sys.modules)") == "False"


def test_where_no_cache_can_be_written_kernels_are_compiled_all_the_same(tmp_path: Path) -> None:
    code = (
        "import pathlib\n"
        "def refuse(self, *args, **named):\n"
        "    raise PermissionError(13, 'read-only', str(self))\n"
        "pathlib.Path.mkdir = refuse\n"
        "from store.compiled import compiling\n"
        "def double(number): return 2 * number\n"
        "print(compiling.cache_directory(pathlib.Path()), compiling.compiled(double)(21))"
    )
    assert run(code).split() == ["None", "42"]


def test_a_cache_in_the_users_directory_serves_where_the_sources_cannot_be_written(tmp_path: Path) -> None:
    code = (
        "import pathlib; mkdir = pathlib.Path.mkdir\n"
        "def refuse(self, *args, **named):\n"
        "    if '__pycache__' in str(self): raise PermissionError(13, 'read-only', str(self))\n"
        "    mkdir(self, *args, **named)\n"
        "pathlib.Path.mkdir = refuse\n"
        "from store.compiled import compiling\n"
        "print(compiling.cache_directory(pathlib.Path()))"
    )
    directory = Path(run(code, XDG_CACHE_HOME=str(tmp_path)))
    assert directory.parent == tmp_path / "reput"
    assert directory.is_dir()
