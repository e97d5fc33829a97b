import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.compile_kernels import kernel_names
from store.compiled import compiling

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    paths = os.pathsep.join((str(ROOT), str(ROOT / "protos")))
    environment = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_every_kernel_has_what_loading_asks_for() -> None:
    names = kernel_names()
    assert {"store.compiled.crc32_kernel", "store.walk.log_walk_kernel"} <= set(names)
    for name in names:
        assert "\ndef touch() -> None:" in (ROOT / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"), name


def test_setup_compiles_every_kernel() -> None:
    done = run("-m", "deploy.compile_kernels")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_cache_begins_with_what_was_shipped_and_is_then_left_alone(tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "cache" / "kernels-1"
    (shipped / "code").mkdir(parents=True)
    (shipped / "code" / "walk.nbc").write_bytes(b"compiled")

    compiling.take_along(shipped, own)
    (own / "code" / "walk.nbc").write_bytes(b"compiled anew")
    compiling.take_along(shipped, own)
    compiling.take_along(tmp_path / "none", tmp_path / "cache" / "kernels-2")

    assert [own] == list(own.parent.iterdir())
    assert b"compiled anew" == (own / "code" / "walk.nbc").read_bytes()


def test_setup_goes_on_where_numba_cannot_be_used() -> None:
    done = run(
        "-c",
        "import sys; sys.modules['numba'] = None; from deploy import compile_kernels; sys.exit(compile_kernels.main())",
    )
    assert done.returncode == 0
    assert "plain code will serve" in done.stderr


@pytest.mark.long
def test_kernels_stay_inside_their_buffers() -> None:
    """Thousands of damaged logs once more, with numba's own checks of each index."""
    damaged = "tests/store/walk/test_record_runs.py"
    done = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "damaged or cut or any", damaged, NUMBA_BOUNDSCHECK="1"
    )
    assert done.returncode == 0, done.stdout
