"""Where the jobs of the pipeline write."""

import pathlib

import pytest

from tests.support.command import run_command


@pytest.mark.parametrize(
    "arguments",
    [
        ["analytics", "--store", "store"],
        ["audit", "--store", "store"],
        ["audit-cluster", "--shard", "broker-a=store"],
        ["restore", "--archive", "archive"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_uri_is_no_place_to_write_and_makes_no_folder_of_its_name(
    arguments: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    finished = run_command("pipeline", *arguments, "--out", "s3://bucket/out")

    assert finished.returncode == 2
    assert "this is a URI: name a path of this machine" in " ".join(finished.stderr.split())
    assert list(tmp_path.iterdir()) == []
