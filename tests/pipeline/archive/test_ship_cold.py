"""`ship-cold` ships each sealed log file once, whole or not at all, and removes nothing."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from pipeline.archive import ship_cold
from store.cold.manifest import decode_manifest
from store.cold.objects import manifest_name
from store.errors import InvalidArgumentError, UnsupportedStoreError
from tests.support.archives import BROKER, make_file_ahead, message, write_log, written_to
from tests.support.object_store import CREDENTIALS, ROOT, running_object_store

FILE_BYTES = 1 << 14


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_log(tmp_path / "store", (message(n, keys=f"k{n}") for n in range(300)), file_bytes=FILE_BYTES)


def log_files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}


def shipped_offsets(root: Path) -> list[int]:
    manifest = root / manifest_name(BROKER)
    return [segment.first_offset for segment in decode_manifest(manifest.read_bytes(), "cold.json")]


def objects_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_sealed_files_are_shipped_once_and_stay_where_they_were(store: Path, tmp_path: Path) -> None:
    before, tier = log_files(store), tmp_path / "tier"
    out = f"file://{tier}"

    planned = ship_cold.run(store, out, broker_name=BROKER, dry_run=True)
    assert not tier.exists()
    first = ship_cold.run(store, out, broker_name=BROKER)
    objects = objects_of(tier)
    second = ship_cold.run(store, out, broker_name=BROKER)

    sealed = sorted(before)[:-1]
    assert len(sealed) > 3
    assert planned.counts["shipped_file_count"] == first.counts["shipped_file_count"] == len(sealed)
    assert (second.counts["shipped_file_count"], second.counts["known_file_count"]) == (0, len(sealed))
    assert shipped_offsets(tier) == [int(name) for name in sealed]
    assert {name: objects[f"{BROKER}/{name}.log"] for name in sealed} == {name: before[name] for name in sealed}
    assert log_files(store) == before
    assert objects_of(tier) == objects


def test_a_log_goes_on_after_retention_and_another_log_is_refused(store: Path, tmp_path: Path) -> None:
    out = f"file://{tmp_path}/tier"
    ship_cold.run(store, out, broker_name=BROKER)
    whole = shipped_offsets(tmp_path / "tier")
    for name in sorted(log_files(store))[:2]:
        (store / "commitlog" / name).unlink()

    ship_cold.run(store, out, broker_name=BROKER)
    other = write_log(tmp_path / "other", (message(n + 9) for n in range(300)), file_bytes=FILE_BYTES)

    assert shipped_offsets(tmp_path / "tier") == whole
    with pytest.raises(UnsupportedStoreError, match="another log"):
        ship_cold.run(other, out, broker_name=BROKER)
    ship_cold.run(other, out, broker_name="broker-b")
    with pytest.raises(InvalidArgumentError):
        ship_cold.run(store, str(tmp_path / "path"), broker_name=BROKER)


def test_a_damaged_log_file_is_a_finding_and_the_others_are_shipped(store: Path, tmp_path: Path) -> None:
    broken = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(broken.read_bytes())
    data[4:8] = b"bad!"
    broken.write_bytes(data)

    report = ship_cold.run(store, f"file://{tmp_path}/tier", broker_name=BROKER)

    assert [(row["kind"], row["commit_log_offset"]) for row in report.findings] == [
        ("log_file_not_shipped", int(broken.name))
    ]
    assert int(broken.name) not in shipped_offsets(tmp_path / "tier")
    assert any("is not in the cold tier" in note for note in report.notes)


def test_a_run_goes_on_where_a_killed_one_was(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_object_store() as server:
        server.fs.create_dir("cold")
        out = server.uri("cold/tier")
        server.tell("hold", ".index", 2)
        command = [sys.executable, "-m", "cli.main", "pipeline", "ship-cold", "--store", store, "--out", out]
        with subprocess.Popen(command, cwd=ROOT, env=os.environ | CREDENTIALS, stdout=subprocess.DEVNULL) as killed:
            assert server.said() == "held"
            killed.kill()
        held = shipped_offsets(server.download("cold/tier", tmp_path / "held"))
        server.tell("release")

        report = ship_cold.run(store, out, broker_name=BROKER)
        ship_cold.run(store, f"file://{tmp_path}/beside", broker_name=BROKER)

        assert held == [int(name) for name in sorted(log_files(store))[:2]]
        assert report.counts["known_file_count"] == 2
        assert objects_of(server.download("cold/tier", tmp_path / "whole")) == objects_of(tmp_path / "beside")


def test_a_log_file_made_ahead_was_damage_of_the_file_before_it(store: Path, tmp_path: Path) -> None:
    sealed = sorted(log_files(store))[:-1]
    make_file_ahead(store, file_bytes=FILE_BYTES)

    report = ship_cold.run(store, f"file://{tmp_path}/tier", broker_name=BROKER)

    assert report.findings == []
    assert shipped_offsets(tmp_path / "tier") == [int(name) for name in sealed]


@pytest.mark.parametrize("is_replicated", [False, True])
def test_a_full_log_file_was_shipped_before_its_end_was_safe(store: Path, tmp_path: Path, is_replicated: bool) -> None:
    safe, end = FILE_BYTES + 1000, 4 * FILE_BYTES
    durable, confirmed = (end, safe) if is_replicated else (safe, None)

    with written_to(store, durable, confirmed_offset=confirmed):
        report = ship_cold.run(store, f"file://{tmp_path}/tier", broker_name=BROKER)

    assert report.findings == []
    assert any("is still written to" in note for note in report.notes)
    assert shipped_offsets(tmp_path / "tier") == [0]


def test_a_log_file_that_retention_removed_after_it_was_mapped_ended_the_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = log_files(store), ship_cold.make_segment

    def after_retention(*arguments: Any) -> Any:
        (store / "commitlog" / min(before)).unlink(missing_ok=True)
        return real(*arguments)

    monkeypatch.setattr(ship_cold, "make_segment", after_retention)
    report = ship_cold.run(store, f"file://{tmp_path}/tier", broker_name=BROKER)

    assert report.findings == []
    assert shipped_offsets(tmp_path / "tier") == [int(name) for name in sorted(before)[:-1]]
    assert (tmp_path / "tier" / BROKER / f"{min(before)}.log").read_bytes() == before[min(before)]


def test_a_disk_that_fails_had_the_exit_code_of_findings(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(ship_cold, "map_file", fail)

    assert main(["pipeline", "ship-cold", "--store", str(store), "--out", f"file://{tmp_path}/tier"]) == 4
    assert "DISK_FAILED" in capsys.readouterr().err
