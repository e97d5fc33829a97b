"""Keep a release: what it leaves on a disk, and its contracts, as fixtures that all later releases are tested with.

    python -m tests.releases.freeze VERSION [COMMIT]      COMMIT: HEAD where none is named

The code of the commit serves a new store, work is begun in it and left (left_work.py), and the store is stopped and packed:

    tests/fixtures/reput-VERSION.tar.xz   store/, answers.json (what that code answers to every question), left.json
    tests/fixtures/reput-VERSION.binpb    its protos
    tests/fixtures/releases.json          gets a row

A release is kept once and its fixtures never change: a version that has a row is refused. CHANGELOG.md has a section of the
version then, and tests/releases/test_fixtures.py fails while one of these is missing.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

from tests.releases.left_work import SETTINGS, Clients
from tests.support.fixture_stores import FIXTURES
from tests.support.releases import COMMITS, REGISTER, ROOT, ReleaseStack, environ_of, tree_of, unpack_commit

# Several files of each kind, and few bytes.
SMALL_FILES = {
    **SETTINGS,
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(64 << 10),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400",
    "REPUT_INDEX_HASH_SLOT_COUNT": "50",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "100",
}
MESSAGE_COUNT = 200
ANSWERS = """
import json, pathlib, sys
from tests.torture.local_shard import open_shard
from tests.torture.test_golden_stores import answers_of
with open_shard(pathlib.Path(sys.argv[1])) as shard:
    print(json.dumps(answers_of(shard)))
"""


def freeze(version: str, commit: str) -> None:
    """See the top of this file."""
    if version in COMMITS:
        raise SystemExit(f"{version} is kept already ({REGISTER}): a release never changes")
    named = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    COMMITS[version] = named.stdout.strip()
    tree = tree_of(version)
    with tempfile.TemporaryDirectory(prefix="reput-freeze-") as scratch:
        work = pathlib.Path(scratch)
        stack = ReleaseStack(version, work / "store", settings=SMALL_FILES)
        with contextlib.closing(_Stopped(stack)), Clients(stack.addresses["gateway"]) as clients:
            left = clients.leave(version, MESSAGE_COUNT)
            stack.wait_until_built()
        (work / "left.json").write_text(json.dumps(left.to_json(), indent=1) + "\n", encoding="utf-8")
        (work / "answers.json").write_text(_answers(COMMITS[version], work), encoding="utf-8")
        with tarfile.open(FIXTURES / f"reput-{version}.tar.xz", "w:xz") as packed:
            for name in ("answers.json", "left.json", "store"):
                packed.add(work / name, name, filter=_without_owner)
    shutil.copyfile(tree / "protos" / "reput" / "descriptors.binpb", FIXTURES / f"reput-{version}.binpb")
    REGISTER.write_text(json.dumps(COMMITS, indent=2) + "\n", encoding="utf-8")


class _Stopped:
    def __init__(self, stack: ReleaseStack) -> None:
        self._stack = stack

    def close(self) -> None:
        """End it cleanly."""
        if self._stack.stop() != 0:
            raise SystemExit(f"the release did not end cleanly:\n{self._stack.log()[-2000:]}")


def _answers(commit: str, work: pathlib.Path) -> str:
    """What the release's own tests see it answer about the store; they open a copy."""
    tree, copy = unpack_commit(commit, work / "tree"), work / "copy"
    shutil.copytree(work / "store", copy)
    environ = {**os.environ, **environ_of(tree)}
    asked = subprocess.run(
        [sys.executable, "-c", ANSWERS, str(copy)], env=environ, cwd=tree, check=True, stdout=subprocess.PIPE, text=True
    )
    return asked.stdout


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.endswith("/lock") or entry.issym():
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> None:
    """The command of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("commit", nargs="?", default="HEAD")
    given = parser.parse_args()
    freeze(given.version, given.commit)


if __name__ == "__main__":
    main()
