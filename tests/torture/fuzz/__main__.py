"""Coverage-guided fuzzing: `python -m tests.torture.fuzz TARGET [libFuzzer options] [corpus directory ...]`.

For example `-runs=1000000 -seed=7 -max_len=4096`. Ends with a non-zero code and a file of the input at the first finding.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["store", "gateway", "commitlog_svc"]):
    from tests.torture.fuzz.targets import TARGETS


def main() -> None:
    """Runs one target until its runs are over or something is found."""
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="reput-fuzz-") as seeds:
        for number, seed in enumerate(target.corpus(name)):
            (Path(seeds) / f"{number:04d}").write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, seeds], target.run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
