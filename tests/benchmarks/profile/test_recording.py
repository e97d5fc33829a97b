"""`make profile` records running services."""

import pathlib
import subprocess

import pytest

from benchmarks.profile.flame_graph import frames

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.bench
@pytest.mark.timeout(300)
def test_make_profile_names_the_handler_of_a_query_in_its_graph(tmp_path: pathlib.Path) -> None:
    command = ["make", "profile", "PATHS=query_by_key", "SECONDS=4", f"DIRECTORY={tmp_path}"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert made.returncode == 0, made.stderr[-3000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "query_by_key.svg"]
    names = [frame.name for frame in frames((tmp_path / "query_by_key.svg").read_text(encoding="utf-8"))]
    assert any(name.startswith("GatewayServicer.QueryMessageByKey (gateway/reput/servicer.py:") for name in names)
    assert {"gateway", "commitlog_svc", "followers"} <= set(names)
