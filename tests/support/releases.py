"""Releases that are kept: the code of each, from the repository's history, and what it left behind, from tests/fixtures.

    tests/fixtures/releases.json          version: the commit whose code it is
    tests/fixtures/reput-VERSION.tar.xz   a store as that release left it (tools/freeze_release.py makes it)
    tests/fixtures/reput-VERSION.binpb    its protos, as descriptors

The code of a release runs with the libraries of today, in a directory of its own. It has no compiled kernels: plain code does
the same, more slowly.
"""

import functools
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Mapping

from tests.support.fixture_stores import FIXTURES
from tests.support.stack import NO_REMOTING, SMALL_LOG_FILES, Stack

ROOT = pathlib.Path(__file__).parents[2]
REGISTER = FIXTURES / "releases.json"
COMMITS: dict[str, str] = json.loads(REGISTER.read_text(encoding="utf-8"))
_trees = tempfile.TemporaryDirectory(prefix="reput-releases-")


def unpack_commit(commit: str, directory: pathlib.Path, left_out: Collection[str] = ()) -> pathlib.Path:
    """The files of a commit but for some folders, in a new directory; returns it."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
        paths = [".", *(f":(exclude){folder}" for folder in left_out)]
        subprocess.run(["git", "archive", "-o", packed.name, commit, "--", *paths], cwd=ROOT, check=True)
        with tarfile.open(packed.name) as archive:
            archive.extractall(directory, filter="data")
    return directory


@functools.cache
def tree_of(version: str) -> pathlib.Path:
    """The code of a release, unpacked once for this process and removed with it; what serving does not need is left out."""
    return unpack_commit(COMMITS[version], pathlib.Path(_trees.name) / version, ("tests", "docs", "benchmarks"))


def environ_of(tree: pathlib.Path) -> dict[str, str]:
    """With it a Python takes every module of ours from a tree, and its children do, too."""
    return {"PYTHONPATH": os.pathsep.join((str(tree), str(tree / "protos"))), "PYTHONSAFEPATH": "1"}


class ReleaseStack(Stack):
    """`reput serve` of a release. Arguments as Stack, behind the release."""

    defaults = SMALL_LOG_FILES

    def __init__(
        self, version: str, store: pathlib.Path, *flags: str, settings: Mapping[str, str] | None = None
    ) -> None:
        tree = tree_of(version)
        # 0.2.0 refuses these settings, as it refuses all that it does not know.
        without_ports = NO_REMOTING if (tree / "nameserver_svc").exists() else {}
        super().__init__(store, *flags, settings={**without_ports, **environ_of(tree), **(settings or {})})
