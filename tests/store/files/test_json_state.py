"""Small state is read whole, also while its owner replaces it."""

import os
from pathlib import Path

import pytest

from store.files.file_system import PathLike, RealFileSystem
from store.files.json_state import read_bytes


class Replaced(RealFileSystem):
    """The file is replaced after it was opened, each time that its size is asked for."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stat_size(self, path: PathLike) -> int:
        """See FileSystem."""
        new = Path(f"{path}.new")
        new.write_bytes(self._content)
        os.replace(new, path)
        return super().stat_size(path)


@pytest.mark.parametrize("size_bytes", [0, 1, 99, 100, 101, 5_000])
def test_a_file_that_is_replaced_after_it_was_opened_is_read_as_it_was(tmp_path: Path, size_bytes: int) -> None:
    """By a shorter one it was cut to the length of the new one: JSON that nobody wrote."""
    path = tmp_path / "state.json"
    before = bytes(range(100))
    path.write_bytes(before)

    assert read_bytes(Replaced(b"x" * size_bytes), path) == before
    assert read_bytes(RealFileSystem(), path) == b"x" * size_bytes


def test_a_file_that_does_not_exist_reads_as_none(tmp_path: Path) -> None:
    assert read_bytes(RealFileSystem(), tmp_path / "state.json") is None
