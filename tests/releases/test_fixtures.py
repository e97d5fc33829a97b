"""Every release of the CHANGELOG is kept, its protos still fit, and its store is gone on with as it was left."""

import json
import pathlib
import re
import subprocess
import tarfile

import pytest

from tests.releases.left_work import SETTINGS, Clients, LeftWork
from tests.support.fixture_stores import FIXTURES
from tests.support.releases import COMMITS, ROOT
from tests.support.stack import hosted_stack
from tools.proto_breaking import breaking

# The first release that is tested with later ones; of 0.1.0 a store is kept (tests/torture/test_golden_stores.py).
FIRST = (0, 2, 0)
SECTION = re.compile(r"^## \[(\d+)\.(\d+)\.(\d+)\]", re.MULTILINE)
# Nothing expires, however old the fixture is.
KEPT = {"REPUT_COMMITLOG_FILE_RESERVED_SECONDS": str(100 * 366 * 86_400)}


def missing_of(changelog: str, commits: dict[str, str], fixtures: pathlib.Path) -> list[str]:
    """What is not kept of the releases of a CHANGELOG."""
    releases = [tuple(map(int, numbers)) for numbers in SECTION.findall(changelog)]
    versions = {".".join(map(str, release)) for release in releases if release >= FIRST} | commits.keys()
    missing = [f"{version}: no row of releases.json" for version in versions - commits.keys()]
    for version in versions:
        names = (f"reput-{version}.tar.xz", f"reput-{version}.binpb")
        missing += [f"{version}: no {name}" for name in names if not (fixtures / name).exists()]
    return sorted(missing)


def test_every_release_of_the_changelog_is_kept() -> None:
    """Otherwise: `make freeze VERSION=...` (tests/releases/freeze.py)."""
    assert missing_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), COMMITS, FIXTURES) == []


def test_a_release_that_nobody_kept_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "reput-0.2.0.tar.xz").touch()
    text = "## [Unreleased]\n## [0.3.0] - 2027-01-01\n## [0.2.0] - 2026-11-28\n## [0.1.0]\n"
    assert missing_of(text, {"0.2.0": "943ee6d"}, tmp_path) == [
        "0.2.0: no reput-0.2.0.binpb",
        "0.3.0: no reput-0.3.0.binpb",
        "0.3.0: no reput-0.3.0.tar.xz",
        "0.3.0: no row of releases.json",
    ]


@pytest.mark.parametrize("version", COMMITS)
def test_the_commit_of_a_release_is_in_the_history(version: str) -> None:
    asked = subprocess.run(
        ["git", "merge-base", "--is-ancestor", COMMITS[version], "HEAD"], cwd=ROOT, capture_output=True, check=False
    )
    assert asked.returncode == 0, asked.stderr


@pytest.mark.parametrize("version", COMMITS)
def test_today_s_protos_break_no_program_and_no_log_of_a_release(version: str) -> None:
    assert breaking(baseline=FIXTURES / f"reput-{version}.binpb") == 0


@pytest.mark.life
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", COMMITS)
def test_what_was_under_way_in_the_store_of_a_release_goes_on(version: str, tmp_path: pathlib.Path) -> None:
    """All leases are over and all timers are due by now."""
    with tarfile.open(FIXTURES / f"reput-{version}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    left = LeftWork(**json.loads((tmp_path / "left.json").read_text(encoding="utf-8")))
    with (
        hosted_stack(tmp_path / "store", settings={**SETTINGS, **KEPT}) as today,
        Clients(today.addresses["gateway"]) as clients,
    ):
        clients.check(left, with_handles=False)
