"""The pipeline on a cluster: submitted to two workers, with nothing of the project on their path but the zip."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pipeline.ship import ZIP_NAME, write_zip
from tests.pipeline.standalone import HOME, running_cluster

ROOT = Path(__file__).resolve().parents[2]
SUBMIT_SECONDS_MAX = 200.0


def _files(root: Path) -> dict[str, bytes]:
    """Queue files by path, index files by order: these are named by the clock."""
    found = {
        str(path.relative_to(root)): path.read_bytes() for path in (root / "consumequeue").rglob("*") if path.is_file()
    }
    indexes = sorted((root / "index").iterdir())
    return found | {f"index {number}": path.read_bytes() for number, path in enumerate(indexes)}


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_rebuild_on_two_workers_makes_rocketmqs_files(engine_store: Path, tmp_path: Path) -> None:
    archive, out = tmp_path / ZIP_NAME, tmp_path / "out"
    write_zip(archive)
    elsewhere = tmp_path / "elsewhere"  # no checkout below the working directory
    elsewhere.mkdir()
    with running_cluster(tmp_path / "cluster") as cluster:
        command = [
            str(HOME / "bin" / "spark-submit"), "--master", cluster.url, "--py-files", str(archive),
            "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
            str(ROOT / "cli" / "submit.py"), "rebuild", "--store", str(engine_store), "--out", str(out),
            "--split-bytes", str(64 << 10),
        ]  # fmt: skip
        env = cluster.environment()
        env.pop("PYTHONPATH", None)
        ended = subprocess.run(
            command, cwd=elsewhere, env=env, capture_output=True, text=True, timeout=SUBMIT_SECONDS_MAX
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-5000:]
        assert len(cluster.worker_ports()) == 2
        # Each executor has lived from the zip, not from an installation that this machine may have.
        assert len(list((tmp_path / "cluster").glob(f"worker-*/app-*/*/{ZIP_NAME}*.unpacked"))) == 2
    report = json.loads(ended.stdout[ended.stdout.index("{") :])
    assert report["job"] == "rebuild"
    assert _files(out) == _files(engine_store)
    assert not list(elsewhere.iterdir()), os.listdir(elsewhere)
