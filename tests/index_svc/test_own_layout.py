"""After a crash the files' bytes do not say how they are divided, but our own checkpoint does."""

import pathlib

import pytest

from index_svc.index_file_set import IndexFileSet
from index_svc.recovery import checkpoint_state, own_layout
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from store.files.json_state import write_json_state
from store.readers.index_reader import IndexLayout, detect_index_layout
from tests.support.dispatches import make_request

LAYOUT = IndexLayout(97, 200)
OTHER = IndexLayout(5_000_000, 20_000_000)


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a file whose entries went on behind it, as a kill leaves them."""
    fs = RealFileSystem()
    path = tmp_path / "checkpoint.json"
    files = IndexFileSet(tmp_path, fs, LAYOUT, lambda: 0)
    files.apply(DispatchColumns.of([make_request(0, keys=("a",))]))
    files.flush()
    write_json_state(fs, path, checkpoint_state(files, 100, 0, last_record=None, is_clean=False))
    files.apply(DispatchColumns.of([make_request(1, keys=("a", "b"))]))
    files.live._write_slots()
    files.close()
    return path


def test_the_checkpoint_knows_what_the_bytes_do_not(tmp_path: pathlib.Path, checkpoint: pathlib.Path) -> None:
    fs = RealFileSystem()
    assert detect_index_layout(fs, tmp_path, OTHER) != LAYOUT
    assert own_layout(fs, checkpoint, tmp_path) == LAYOUT


def test_a_file_of_another_length_is_another_file(tmp_path: pathlib.Path, checkpoint: pathlib.Path) -> None:
    [file] = (tmp_path / "index").iterdir()
    with open(file, "ab") as grown:
        grown.write(bytes(20))
    assert own_layout(RealFileSystem(), checkpoint, tmp_path) is None
    file.unlink()
    assert own_layout(RealFileSystem(), checkpoint, tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", '{"slot_count": 97, "entry_count_max": 200, "files": [7]}', "[1]"])
def test_a_checkpoint_that_says_nothing(tmp_path: pathlib.Path, checkpoint: pathlib.Path, text: str) -> None:
    checkpoint.write_text(text)
    assert own_layout(RealFileSystem(), checkpoint, tmp_path) is None
