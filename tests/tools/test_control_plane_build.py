"""What counts as built: every program, in the version that the tool names."""

import json
from pathlib import Path

from tools.control_plane_build import PROGRAM_VERSIONS, VERSIONS_FILE, missing_programs


def _built(target: Path) -> None:
    (target / "bin").mkdir()
    for name in PROGRAM_VERSIONS:
        (target / "bin" / name).touch(mode=0o755)
    (target / VERSIONS_FILE).write_text(json.dumps(PROGRAM_VERSIONS))


def test_an_empty_directory_lacks_everything(tmp_path: Path) -> None:
    assert set(missing_programs(tmp_path)) == set(PROGRAM_VERSIONS)


def test_a_whole_build_lacks_nothing(tmp_path: Path) -> None:
    _built(tmp_path)
    assert missing_programs(tmp_path) == []


def test_another_version_and_an_interrupted_build_are_built_again(tmp_path: Path) -> None:
    _built(tmp_path)
    (tmp_path / VERSIONS_FILE).write_text(json.dumps({**PROGRAM_VERSIONS, "helm": "3.0.0"}))
    (tmp_path / "bin" / "etcd").unlink()
    assert missing_programs(tmp_path) == ["etcd", "helm"]
