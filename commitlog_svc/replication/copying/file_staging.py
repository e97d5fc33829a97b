"""FileStaging: files of the leader's log while they are fetched, in `reput/commitlog/fetched/`.

    fetched.json                 {"epoch": N}: whose log these files are of
    00000000001073741824         a file by its first offset, as long as what has come of it

They are no part of the log: a start does not look at them. What is there when a fetch begins again is kept, if the same leader
still leads; only bytes that were confirmed are fetched, so they are the same then. Whether they are on the disk nobody knows:
the whole file is checked once it is complete.
"""

import os
from pathlib import Path

from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.paths import log_file_name, parse_log_file_name

STAGING_NAME = "fetched"
STATE_NAME = "fetched.json"


class FileStaging:
    """See the top of this file.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory / STAGING_NAME

    def keep(self, epoch: int, begin_offset: int) -> None:
        """Removes what is not of the leader of this epoch, or lies before an offset that the log has reached (bytes)."""
        state = read_json_state(self._fs, self._directory / STATE_NAME) or {}
        for name in self._fs.listdir(self._directory):
            offset = parse_log_file_name(name)
            if offset is not None and (state.get("epoch") != epoch or offset < begin_offset):
                self._fs.unlink(self._directory / name)

    def begin(self, epoch: int, begin_offset: int) -> None:
        """Files of the leader of this epoch are fetched from now on."""
        self.keep(epoch, begin_offset)
        self._fs.mkdirs(self._directory)
        write_json_state(self._fs, self._directory / STATE_NAME, {"epoch": epoch})

    def path_of(self, offset: int) -> Path:
        """Where the file with this first offset is fetched to."""
        return self._directory / log_file_name(offset)

    def open(self, offset: int) -> tuple[int, int]:
        """A descriptor of the file with this first offset, and how many bytes of it are there."""
        path = self.path_of(offset)
        fd = self._fs.open(path, os.O_RDWR | os.O_CREAT)
        return fd, self._fs.stat_size(path)
