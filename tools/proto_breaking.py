"""Prove that programs and logs of an earlier release still fit the protos: `buf breaking` against a frozen descriptor set.

    python tools/proto_breaking.py            exit with buf's code: 100 when a change breaks one of them
    python tools/proto_breaking.py --freeze   make today's protos the baseline: at a release, or to break on purpose

Public contracts (`apache`, `reput.gateway`, `reput.message`) keep their source too, buf's category FILE: people compile against
them. Internal ones, and the state that is kept as records of the log, keep their bytes, WIRE: services of two releases meet
during a rolling update, and a log outlives both.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE = "tools/proto_baseline.binpb"
BREAKS = 100  # buf's exit code
CATEGORIES = {
    "FILE": ("apache", "reput/gateway", "reput/message"),
    "WIRE": (
        "reput/commitlog",
        "reput/consumequeue",
        "reput/consumer",
        "reput/index",
        "reput/nameserver",
        "reput/schedule",
    ),
}


def breaking(root: pathlib.Path = ROOT, baseline: pathlib.Path = ROOT / BASELINE) -> int:
    """Compare the protos of a tree with a baseline; the exit code of `buf`, which prints each break with its line."""
    code = 0
    every = {folder for folders in CATEGORIES.values() for folder in folders}
    for category, folders in CATEGORIES.items():
        others = sorted(every.difference(folders))
        rules = {"use": [category], "ignore": [f"protos/{folder}" for folder in others]}
        config = {"version": "v2", "modules": [{"path": "protos"}], "breaking": rules}
        code = _buf(root, "breaking", "--against", str(baseline), "--config", json.dumps(config)) or code
    return code


def freeze() -> int:
    """Write the baseline; the exit code of `buf`."""
    return _buf(ROOT, "build", "--exclude-source-info", "-o", BASELINE)


def _buf(root: pathlib.Path, *arguments: str) -> int:
    return subprocess.run([pathlib.Path(sys.executable).parent / "buf", *arguments], cwd=root, check=False).returncode


def main() -> int:
    """The command of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", action="store_true", help="make today's protos the baseline")
    return freeze() if parser.parse_args().freeze else breaking()


if __name__ == "__main__":
    sys.exit(main())
