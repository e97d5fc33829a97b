import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from store.compiled import built, loading

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded nothing."""
    monkeypatch.setattr(loading, "_kernels", {})
    monkeypatch.setattr(loading, "_mode", loading.AUTO)


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


def test_a_kernel_is_loaded_once_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(name: str) -> ModuleType:
        asked.append(name)
        return ModuleType(name)

    monkeypatch.setattr(built, "load", load)
    first = loading.load("a_kernel")
    assert first is not None
    assert loading.load("a_kernel") is first
    assert asked == ["a_kernel"]


def test_one_kernel_that_fails_does_not_keep_another_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> ModuleType:
        if name == "broken_kernel":
            raise ImportError("no program")
        return ModuleType(name)

    monkeypatch.setattr(built, "load", load)
    assert loading.load("broken_kernel") is None
    assert loading.load("good_kernel") is not None


@pytest.mark.parametrize("mode", ["off", "OFF"])
def test_the_environment_switches_kernels_off(mode: str) -> None:
    code = "from store.compiled import loading; print(loading.load('store.walk.log_walk_kernel'))"
    assert run(code, REPUT_KERNELS=mode) == "None"


@pytest.mark.parametrize("module", ["commitlog_svc.commit_log", "store.derive.dispatch_walk", "store.walk.cursor"])
def test_importing_a_user_of_kernels_loads_no_kernel_and_no_compiler(module: str) -> None:
    code = (
        f"import {module}, sys; from store.compiled import loading\n"
        "print(loading._kernels, 'Cython' in sys.modules, 'zlib_ng' in sys.modules)"
    )
    assert run(code) == "{} False False"
