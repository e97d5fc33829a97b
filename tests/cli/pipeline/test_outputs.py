"""Where the jobs of the pipeline write."""

import pathlib

import pytest

from tests.support.archives import archived
from tests.support.command import run_command


def test_a_uri_is_no_place_for_the_state_of_an_audit_of_a_cluster(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    finished = run_command("pipeline", "audit-cluster", "--shard", "broker-a=store", "--out", "s3://bucket/out")

    assert finished.returncode == 2
    assert "this is a URI: name a path of this machine" in " ".join(finished.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["analytics", "archive", "audit", "audit --scratch", "rebuild", "restore"])
def test_a_uri_with_credentials_is_refused_before_spark_starts_and_not_repeated(
    verb: str, broker_store: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _, option = verb.partition(" ")
    source = ["--store", str(broker_store)]
    if job == "restore":
        source = ["--archive", str(archived(broker_store, tmp_path / "archive").archive)]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("pipeline.session", lambda **conf: pytest.fail("Spark has been started"))
    option = option or ("--archive" if job == "archive" else "--out")

    for uri in ("s3://key:hush@bucket/out", "s3://bucket/out?secret_key=hush"):
        finished = run_command("pipeline", job, *source, option, uri)

        assert finished.returncode == 2
        assert "AWS_ACCESS_KEY_ID" in finished.stderr
        assert "hush" not in finished.stdout + finished.stderr
    assert list((tmp_path / "here").iterdir()) == []
