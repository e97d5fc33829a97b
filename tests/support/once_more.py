"""Runs what has failed in a run of thousands once more, alone: `python -m tests.support.once_more CODE [PYTEST ARGUMENT...]`.

For CI, whose machines are shared and small: there a test that waits for ten seconds may now and then wait in vain. What
fails twice, or fails with many others, has failed. What passes alone is named at the end, since it is a defect all the
same: of the test, or of what it tests.
"""

import json
import subprocess
import sys
from pathlib import Path

# More than this is no accident.
TEST_COUNT_MAX = 12
TESTS_FAILED = 1  # pytest's code; all others say that the run itself broke
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(code: int, arguments: list[str]) -> int:
    """The exit code: 0 when all that failed passes now.

    Args:
        code: what the run ended with.
        arguments: for pytest.
    """
    if code != TESTS_FAILED or not LAST_FAILED.is_file():
        return code
    failed = sorted(json.loads(LAST_FAILED.read_text()))
    if not 0 < len(failed) <= TEST_COUNT_MAX:
        print(f"{len(failed)} tests failed: too many to be run once more", flush=True)
        return code
    print(f"{len(failed)} failed, once more, alone:", *failed, sep="\n  ", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", "-m", "", *arguments, *failed]).returncode
    if again == 0:
        print("UNSTEADY: failed among others and passed alone:", *failed, sep="\n  ", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
