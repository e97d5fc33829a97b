"""The zip: complete, the same for the same sources, and a process lives from it as from a checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.ship import is_unpacked, project_root, ship_to_executors, write_zip, zip_of
from store.compiled import built
from tests.pipeline.logs import write_files
from tests.support.waiting import WAIT_SECONDS_MAX

READ = """
import pathlib, sys
sys.path[:0] = [sys.argv[1]]
import pipeline
from pipeline.scan.commitlog import CommitLogDataSource
import store, reput.message.v1.message_pb2
from store.compiled import loading
source = CommitLogDataSource({"path": sys.argv[2], "boundarycache": "off"})
reader = source.reader(source.schema())
print(sum(batch.num_rows for split in reader.partitions() for batch in reader.read(split)))
print(pipeline.__path__[0], store.__file__, sep="\\n")
print(getattr(loading.load("store.walk.scan_kernel"), "__file__", None))
"""


@pytest.fixture(scope="module")
def zip_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ship") / "reput.zip"
    assert write_zip(path) > 100
    return path


def test_the_same_sources_make_the_same_bytes(zip_path: Path, tmp_path: Path) -> None:
    write_zip(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == zip_path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.zip"]


def test_it_holds_modules_and_generated_code_and_no_caches(zip_path: Path) -> None:
    names = zipfile.ZipFile(zip_path).namelist()
    assert {"pipeline/__init__.py", "store/walk/scan_kernel.py", "reput/message/v1/message_pb2.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "protos/"))]


def test_executors_that_come_after_the_start_still_find_the_zip() -> None:
    """Spark's driver serves the file itself, not a copy: it was gone before an executor asked for it."""
    served: list[Path] = []

    class Context:
        def addPyFile(self, path: str) -> None:
            served.append(Path(path))

    ship_to_executors(Context())  # type: ignore[arg-type]

    assert zipfile.ZipFile(served[0]).testzip() is None


@pytest.mark.long
def test_a_process_lives_from_the_zip(zip_path: Path, tmp_path: Path) -> None:
    frames = write_files(tmp_path / "store")
    script = tmp_path / "read.py"
    script.write_text(READ)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    for _ in range(2):  # the second finds what the first has unpacked
        run = subprocess.run(
            [sys.executable, "-S", script, zip_path, tmp_path / "store"],
            cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(packages), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        count, package, store_file, kernel = run.stdout.splitlines()
        assert int(count) == len(frames)
        assert is_unpacked(Path(package) / "x")
        assert zip_of(store_file) is None
        is_compiled = built.binary_of("store.walk.scan_kernel").exists()
        assert kernel.startswith(str(zip_path.parent)) if is_compiled else kernel == "None", (
            "what is compiled is shipped"
        )
    assert len([path for path in zip_path.parent.iterdir() if path.is_dir()]) == 1


def test_a_checkout_is_no_zip() -> None:
    assert zip_of(__file__) is None
    assert (project_root() / "pipeline" / "__init__.py").is_file()
