"""`reput cluster` before anything is started."""

import pathlib

import pytest

from cli.main import main


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


def test_a_replica_without_its_coordinator_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--store", str(tmp_path), "--replica", "r1"]) == 2
    assert "--replica and --coordinator" in capsys.readouterr().err
