"""The permissions of what a process makes, decided by its umask."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import InvalidSettingError
from store.files.umask import set_umask

MAKE = """
import os, sys
from pathlib import Path
from store.files.file_system import RealFileSystem
from store.files.locks import OwnerLock
from store.files.umask import set_umask
os.umask(int(sys.argv[1], 8))
set_umask(sys.argv[2])
fs, root = RealFileSystem(), Path(sys.argv[3])
fs.mkdirs(root / "made")
fs.close(fs.open(root / "made" / "file", os.O_RDWR | os.O_CREAT))
OwnerLock(root / "made" / "lock").acquire()
"""


@pytest.mark.parametrize(
    ("inherited", "setting", "file_mode", "directory_mode"),
    [
        ("022", "", 0o640, 0o750),
        ("000", "", 0o640, 0o750),
        ("077", "", 0o600, 0o700),
        ("022", "0077", 0o600, 0o700),
        ("077", "007", 0o660, 0o770),
        ("077", "022", 0o644, 0o755),
    ],
)
def test_the_setting_decides_and_without_one_others_get_nothing(
    tmp_path: Path, inherited: str, setting: str, file_mode: int, directory_mode: int
) -> None:
    subprocess.run([sys.executable, "-c", MAKE, inherited, setting, str(tmp_path)], check=True)

    modes = {name: stat.S_IMODE((tmp_path / "made" / name).stat().st_mode) for name in ("file", "lock", "")}
    assert modes == {"file": file_mode, "lock": file_mode, "": directory_mode}


@pytest.mark.parametrize("text", ["27", "0o027", "028", "u=rw", " 027", "00027"])
def test_what_is_no_umask_is_refused_and_changes_nothing(text: str) -> None:
    before = os.umask(0o022)
    try:
        with pytest.raises(InvalidSettingError, match="umask"):
            set_umask(text)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
