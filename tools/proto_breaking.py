"""Prove that the protos still understand the last release: `buf breaking` against the release's own descriptor set.

The image to compare with is `protos/reput/descriptors.binpb` of the newest `v*` tag. Before the first release there is
none: then this says so and succeeds.
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGE = "protos/reput/descriptors.binpb"


def main() -> int:
    """Compare; the exit code of `buf`, or 0 when there is nothing to compare with."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if tag.returncode != 0:
        print("buf breaking: no release yet, nothing to compare with")
        return 0
    release = tag.stdout.strip()
    image = subprocess.run(["git", "show", f"{release}:{IMAGE}"], cwd=ROOT, check=False, capture_output=True)
    if image.returncode != 0:
        print(f"buf breaking: release {release} has no {IMAGE}, nothing to compare with")
        return 0
    buf = pathlib.Path(sys.executable).parent / "buf"
    with tempfile.NamedTemporaryFile(suffix=".binpb") as against:
        against.write(image.stdout)
        against.flush()
        command = [buf, "breaking", "--against", against.name]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
