"""How often the files of a builder are looked at."""

from itertools import pairwise

import pytest

from services.following.file_check import CheckedFile, FileChecker
from store.files import json_state
from store.files.checksums import ChecksumTable
from store.files.file_system import RealFileSystem


class Clock:
    """Seconds that pass only when told."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class GoneFile(CheckedFile):
    """One that is not read: it belongs to the store no more."""

    is_wanted = False

    def extents(self):
        raise AssertionError

    def doubt(self, is_doubtful):
        raise AssertionError

    def make_again(self, goes_on):
        raise AssertionError


@pytest.mark.parametrize(("count", "step"), [(json_state.ROW_COUNT_FEW, 3.5), (json_state.ROW_COUNT_FEW + 1, 30.0)])
def test_looks_at_very_many_files_leave_time_between_them(tmp_path, count, step):
    """It takes three seconds to list them, and nothing is done in the half second behind a look."""
    clock, times = Clock(), []
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    files = [GoneFile(f"{number}", path) for number in range(count)]

    def listed():
        times.append(clock.seconds)
        clock.seconds += 3.0
        return files

    fs = RealFileSystem()
    table = ChecksumTable(fs, tmp_path / "checksums")
    checker = FileChecker("test", fs, listed, table, lambda repair: None, bytes_per_second_max=1 << 40, clock=clock)
    while len(times) < 4:
        if not checker.step():
            clock.seconds += 0.5

    assert {later - earlier for earlier, later in pairwise(times)} == {step}
