"""`reput cluster` before anything is started."""

import pathlib

import pytest

from cli.main import main
from store.files.locks import OwnerLock


def test_without_etcd_the_command_says_what_to_install_and_exits_with_2(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    code = main(["cluster", "--dir", str(tmp_path / "c"), "--replicas", "3", "--port-file", str(tmp_path / "ports")])

    assert code == 2
    assert "apt-get install etcd-server" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_directory_with_a_damaged_cluster_file_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    (tmp_path / "etcd").chmod(0o755)
    (tmp_path / "cluster.json").write_text("no JSON")
    monkeypatch.setenv("PATH", str(tmp_path))

    code = main(["cluster", "--dir", str(tmp_path), "--port-file", str(tmp_path / "ports")])

    assert code == 2
    assert "Give an empty directory" in capsys.readouterr().err


def test_a_second_cluster_in_a_directory_is_refused_and_changes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It took other ports, wrote them over those of the first one, and removed its port file."""
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    (tmp_path / "etcd").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("cli.cluster.STOPPING_SECONDS_MAX", 0.0)
    (tmp_path / "ports").write_text("of the first one")
    first = OwnerLock(tmp_path / "c" / "lock")
    first.acquire()
    try:
        code = main(["cluster", "--dir", str(tmp_path / "c"), "--port-file", str(tmp_path / "ports")])
    finally:
        first.release()

    assert code == 2
    assert "a `reput cluster` runs in" in capsys.readouterr().err
    assert (tmp_path / "ports").read_text() == "of the first one"
    assert not (tmp_path / "c" / "cluster.json").exists()


def test_a_replica_without_its_coordinator_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--store", str(tmp_path), "--replica", "r1"]) == 2
    assert "--replica and --coordinator" in capsys.readouterr().err
