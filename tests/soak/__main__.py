"""A soak by hand: `python -m tests.soak [--minutes M] [--seed N] [--before RELEASE] [--report FILE]`; see soak.py.

It tells each minute how far it is and writes a report. What breaks a promise is printed with the seed, and the exit code is 1;
the stores and the logs of all processes stay where they were, and the line that names them says where.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.soak.soak import PROBLEM_COUNT_MAX, Soak
from tests.support.etcd import ETCD, MISSING
from tests.support.releases import COMMITS


def main() -> int:
    """Run one soak."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="how long there is load")
    parser.add_argument("--seed", type=int, help="of faults and clients")
    parser.add_argument("--before", choices=("today", *COMMITS), default="today", help="the release to begin with")
    parser.add_argument("--report", type=Path, default=Path("soak.md"), help="where the report is written")
    given = parser.parse_args()
    if ETCD is None:
        print(MISSING)
        return 2
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(32)
    directory = Path(tempfile.mkdtemp(prefix="reput-soak-"))
    print(f"seed {seed}; stores and logs are in {directory}", flush=True)
    soak = Soak(directory, given.minutes * 60, seed, given.before.replace("today", ""))
    try:
        problems = soak.go().problems
    except Exception as error:  # the report has what was known by then
        traceback.print_exc()
        problems = [*soak.figures.problems, f"it ended early: {error!r}"]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    given.report.write_text(f"A soak of {day}, seed {seed}\n\n{soak.figures.table()}", encoding="utf-8")
    print(f"the report is in {given.report}")
    if problems:
        print("\n".join(problems[:PROBLEM_COUNT_MAX]))
        print(f"{len(problems)} problems; seed {seed}; stores and logs are in {directory}")
        return 1
    shutil.rmtree(directory)
    print("all promises kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
