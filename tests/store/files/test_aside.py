"""What is kept aside is kept once, and whole; a disk without room costs neither numbers nor halves of files."""

import errno
from pathlib import Path

import pytest

from services.observing.meters import Meters, show_moved_aside
from store.errors import DiskFullError
from store.files.aside import FOLDER_COUNT_MAX, Aside, aside_words, builder_folder
from store.files.file_system import PathLike, RealFileSystem


class NarrowFileSystem(RealFileSystem):
    """A disk that takes so many writes more."""

    def __init__(self, write_count: int) -> None:
        super().__init__()
        self.write_count = write_count

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """See FileSystem."""
        if not self.write_count:
            raise DiskFullError("no room", directory="/")
        self.write_count -= 1
        super().pwrite(fd, data, position)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tries_on_a_full_disk_use_up_neither_room_nor_numbers(tmp_path: Path) -> None:
    path = tmp_path / "consumequeue/T/0/00000000000000000000"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"units")
    folder = builder_folder(tmp_path, "consumequeue")
    fs = NarrowFileSystem(0)
    for _ in range(FOLDER_COUNT_MAX + 1):  # each a life that ends here, and is tried again
        with pytest.raises(DiskFullError):
            Aside(fs, tmp_path, folder).copy(path)
    assert files_of(folder) == {}
    fs.write_count = 1
    aside = Aside(fs, tmp_path, folder)
    aside.copy(path)
    assert files_of(folder) == {"1/consumequeue/T/0/00000000000000000000": b"units"}
    assert aside.moved == ["consumequeue/T/0/00000000000000000000"]


def test_the_next_start_takes_another_number_than_one_that_keeps_something(tmp_path: Path) -> None:
    folder = builder_folder(tmp_path, "index")
    for content in (b"first", b"second"):
        (tmp_path / "index").mkdir(exist_ok=True)
        (tmp_path / "index/20260101000000000").write_bytes(content)
        Aside(RealFileSystem(), tmp_path, folder).move(tmp_path / "index/20260101000000000")
    assert files_of(folder) == {"1/index/20260101000000000": b"first", "2/index/20260101000000000": b"second"}


def test_nothing_more_is_moved_once_the_room_for_what_is_kept_is_used_up_and_nothing_is_removed(tmp_path: Path) -> None:
    folder = builder_folder(tmp_path, "index")
    fs = RealFileSystem()
    (tmp_path / "index").mkdir()
    paths = [tmp_path / "index" / f"2026010100000000{number}" for number in range(4)]
    for path in paths:
        path.write_bytes(b"x" * 8192)
    Aside(fs, tmp_path, folder, bytes_max=16384).move(paths[0])
    aside = Aside(fs, tmp_path, folder, bytes_max=16384)  # the next start: what is kept already counts
    aside.move(paths[1])
    for step in (aside.move, aside.copy):
        with pytest.raises(DiskFullError, match="its files take 16384 of 16384 bytes: look at them, then remove"):
            step(paths[2])
    assert paths[2].exists()
    kept = sorted(folder.rglob("2026*"))
    assert len(kept) == 2
    kept[0].unlink()
    aside.move(paths[2])  # the next try of the builder, once there is room
    assert not paths[2].exists()


def test_holes_of_kept_files_take_no_room_and_repairs_have_no_limit_of_bytes(tmp_path: Path) -> None:
    fs = RealFileSystem()
    path = tmp_path / "consumequeue/T/0/00000000000000000000"
    path.parent.mkdir(parents=True)
    for aside in (
        Aside(fs, tmp_path, builder_folder(tmp_path, "consumequeue"), bytes_max=65536),
        Aside(fs, tmp_path, bytes_max=1),
    ):
        for number in range(3):
            with path.open("wb") as file:
                file.write(b"units")
                file.truncate(1 << 20)
            aside.move(path)
            assert len(aside.moved) == number + 1


def test_a_limit_of_room_leaves_place_for_a_file_that_is_larger_than_it(tmp_path: Path) -> None:
    """Otherwise nobody could make room for it."""
    path = tmp_path / "index/20260101000000000"
    path.parent.mkdir()
    path.write_bytes(b"x" * 65536)
    Aside(RealFileSystem(), tmp_path, builder_folder(tmp_path, "index"), bytes_max=4096).move(path)
    assert not path.exists()


class SickDisk(RealFileSystem):
    """A disk that cannot list a folder now."""

    def listdir(self, path: PathLike) -> list[str]:
        """See FileSystem."""
        raise OSError(errno.EIO, "Input/output error", str(path))


def test_a_folder_that_cannot_be_listed_ended_the_status_and_the_metrics_page(tmp_path: Path) -> None:
    assert "reput/aside/index/ cannot be read" in aside_words(SickDisk(), tmp_path, "index")
    meters = Meters()
    show_moved_aside(meters, SickDisk(), tmp_path, "index")
    (gauge,) = meters.gauges
    assert gauge.read() == {}
