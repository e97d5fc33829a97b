"""Few descriptors: the limit is raised where it may be, sets of open files fit into it, and what is missing is said."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import ResourceBusyError
from store.files.file_system import PathLike, RealFileSystem
from store.files.locks import OwnerLock
from store.files.open_files import OPEN_FILE_COUNT_MAX, OPEN_FILE_COUNT_MIN, OpenFiles, open_file_count_max


def open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def soft_limit(request: pytest.FixtureRequest):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def set_limit(count: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))

    yield set_limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("limit", "count"), [(32, OPEN_FILE_COUNT_MIN), (64, 8), (128, 40), (1024, 488), (2048, OPEN_FILE_COUNT_MAX)]
)
def test_a_set_keeps_as_many_files_open_as_the_limit_leaves(soft_limit, limit: int, count: int) -> None:
    if limit > resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
        pytest.skip("this machine allows fewer")
    soft_limit(limit)
    assert open_file_count_max() == count


def test_more_files_than_the_limit_are_read_and_written_one_after_the_other(soft_limit, tmp_path: Path) -> None:
    soft_limit(open_count() + 64)
    files = OpenFiles(RealFileSystem(), count_max=OPEN_FILE_COUNT_MIN)
    paths = [tmp_path / str(number) for number in range(200)]
    before = open_count()
    for number, path in enumerate(paths):
        files.create(path, 8).write(0, number.to_bytes(8, "big"))
        assert open_count() - before <= OPEN_FILE_COUNT_MIN
    for number, path in enumerate(paths):
        assert files.get(path).read(0, 8) == number.to_bytes(8, "big")
        files.get(path).flush()
    files.close()
    assert open_count() == before


@pytest.mark.parametrize(("soft", "hard", "raised"), [(64, 512, 512), (512, 512, 512)])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int, raised: int) -> None:
    code = (
        "import resource; from store.files.open_files import raise_open_file_limit; raise_open_file_limit();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    said = subprocess.run(
        ["bash", "-c", f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$0" -c "$1"', sys.executable, code],
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == f"({raised}, {hard})"


def test_a_process_without_a_free_descriptor_says_which_limit_it_has(soft_limit, tmp_path: Path) -> None:
    fs, limit = RealFileSystem(), open_count() + 4
    soft_limit(limit)
    held = []
    try:
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for work in (
            lambda: fs.open(tmp_path / "f", os.O_RDWR | os.O_CREAT),
            lambda: fs.listdir(tmp_path),
            lambda: fs.fsync_dir(tmp_path),
            OwnerLock(tmp_path / "lock").acquire,
        ):
            with pytest.raises(ResourceBusyError, match=rf"the process may have {limit}: raise the limit \(ulimit -n"):
                work()
    finally:
        for fd in held:
            os.close(fd)


class MadeMeanwhile(RealFileSystem):
    """Another process makes a file, with its folders, just after this one asked its `number`th question."""

    def __init__(self, path: Path, number: int) -> None:
        super().__init__()
        self._made = path
        self._left = number

    def _asked(self, answer: bool) -> bool:
        self._left -= 1
        if not self._left:
            self._made.parent.mkdir(parents=True, exist_ok=True)
            self._made.touch()
        return answer

    def is_file(self, path: PathLike) -> bool:
        return self._asked(super().is_file(path))

    def is_dir(self, path: PathLike) -> bool:
        return self._asked(super().is_dir(path))

    def exists(self, path: PathLike) -> bool:
        return self._asked(super().exists(path))


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("is_folder_there", [True, False])
def test_a_file_that_another_process_made_meanwhile_was_taken_for_a_foreign_one(
    tmp_path: Path, is_folder_there: bool, number: int
) -> None:
    path = tmp_path / "topic" / "0" / "00000000000000000000"
    if is_folder_there:
        path.parent.mkdir(parents=True)

    OpenFiles(MadeMeanwhile(path, number)).create(path, 20)

    assert [found for found in tmp_path.rglob("*") if ".foreign" in found.name] == []
    assert path.stat().st_size == 20


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_a_process_without_standard_streams_gives_their_numbers_to_none_of_its_files(closed: str) -> None:
    """Named after what could follow: a line of a library at standard error, in a file of the store."""
    code = """
import os, sys
from store.files.open_files import open_standard_descriptors
open_standard_descriptors()
numbers = [int(number) for number in sys.argv[1].split()]
right = all(os.path.realpath(f"/proc/self/fd/{number}") == os.devnull and os.get_inheritable(number) for number in numbers)
os._exit(open(os.devnull).fileno() if right else 1)
"""
    redirections = " ".join(f"{number}>&-" for number in closed.split())
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" "$2" {redirections}', sys.executable, code, closed],
        cwd=Path(__file__).parents[3], timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 3
