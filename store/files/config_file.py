"""The one reader, and the one writer, of RocketMQ's JSON files in `config/` and of their `.bak`.

`ConfigManager.load` of RocketMQ 5.5.0 takes the `.bak` when the file is missing or empty, and on any failure to parse it. So
does this reader. Where both are damaged it takes what can still be read of the file, else of the `.bak`, else nothing: the log
is the truth, and no file of `config/` keeps a service from starting. What was found, and what is used instead, is the `problem`
of the result, for the log, the status and fsck.

The writer never replaces a damaged file silently: it is renamed to `NAME.damaged-1` (or the next free number) first. Nor does a
damaged file become the `.bak`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from store.errors import StoreCorruptedError, failure_fields
from store.files.file_system import FileSystem
from store.files.json_state import NoRegularFileError, read_bytes, write_bytes_atomic
from store.format.config_json import load_document, salvage_document

BACKUP_SUFFIX = ".bak"
DAMAGED_SUFFIX = ".damaged-"
# Of one file: a disk that damages it again and again must not fill itself with what it damaged. The first ones stay.
DAMAGED_COUNT_MAX = 16

_log = structlog.get_logger("reput.store")


class ConfigFile(NamedTuple):
    """The part of a file that is used.

    Attributes:
        content: sound bytes; None: there is nothing to use.
        problem: why these are not simply the bytes of the file, and what they are; empty when they are, and when there is
            neither the file nor its `.bak`.
        is_backup: the content is that of the `.bak`.
    """

    content: bytes | None
    problem: str = ""
    is_backup: bool = False


def check_json(data: bytes, name: str) -> None:
    """Raises StoreCorruptedError for bytes that are no sound JSON file of that name."""
    load_document(data, name)


class RememberedCheck:
    """A check that looks once at each content: a large file is read, and replaced, often.

    Args:
        check: see `read_config_file`.
    """

    def __init__(self, check: Callable[[bytes, str], None] = check_json) -> None:
        self._check = check
        self._sound: dict[str, tuple[int, ...]] = {}  # hashes of a new content, of the file, of its `.bak`

    def __call__(self, data: bytes, name: str) -> None:
        """See `read_config_file`."""
        if hash(data) not in self._sound.get(name, ()):
            self._check(data, name)
            self.trust(data, name)

    def trust(self, data: bytes, name: str) -> None:
        """These bytes are sound: an encoder of ours made them."""
        before = [known for known in self._sound.get(name, ()) if known != hash(data)]
        self._sound[name] = (*before[-2:], hash(data))


def read_config_file(
    fs: FileSystem,
    path: Path,
    check: Callable[[bytes, str], None] = check_json,
    *,
    has_backup: bool = True,
    is_json: bool = True,
) -> ConfigFile:
    """Reads a file of `config/`; never raises for what the file holds or is.

    Args:
        fs: the disk port.
        path: the file.
        check: raises StoreCorruptedError for bytes that are damaged; gets them and the name of the file.
        has_backup: whether RocketMQ keeps a `.bak` of it.
        is_json: whether a part of it may be used.
    """
    name, backup = path.name, path.with_name(path.name + BACKUP_SUFFIX)
    data, why = _read(fs, path, check)
    if data is not None and not why:
        return ConfigFile(data)
    is_missing = data is None and not why
    other, other_why = _read(fs, backup, check) if has_backup else (None, "")
    if other is not None and not other_why:
        # RocketMQ's own writer leaves no file for a moment: that is no damage.
        return ConfigFile(other, "" if is_missing else f"{why}; {name}{BACKUP_SUFFIX} is used", is_backup=True)
    words = "; ".join(word for word in (why, other_why) if word)
    for found, source in ((data, name), (other, backup.name)):
        if found and is_json:
            try:
                left = salvage_document(found, name)
                content = json.dumps(left, ensure_ascii=False).encode(errors="backslashreplace")
            except (StoreCorruptedError, RecursionError):  # what is read nests nearly too deep to be written
                continue
            return ConfigFile(content, f"{words}; what can be read of {source} is used", source == backup.name)
    return ConfigFile(None, f"{words}; nothing of it is used" if words else "")


def replace_config_file(
    fs: FileSystem,
    path: Path,
    content: bytes,
    check: Callable[[bytes, str], None] = check_json,
    *,
    has_backup: bool = True,
) -> bool:
    """Replaces a file; the one before, if sound, becomes the `.bak`. False: the file has this content already.

    Raises:
        DiskFullError, FlushFailedError: the file is the old or the new one, or a damaged one is aside.
    """
    before, why = _read(fs, path, check)
    if before == content:
        return False
    if why and fs.is_file(path) and fs.stat_size(path):
        set_aside(fs, path)
    elif before and has_backup:
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        if _read(fs, backup, check)[1] and fs.is_file(backup) and fs.stat_size(backup):
            set_aside(fs, backup)
        write_bytes_atomic(fs, backup, before)
    write_bytes_atomic(fs, path, content)
    return True


def set_aside(fs: FileSystem, path: Path) -> None:
    """Renames a damaged file, so that it can be looked at. Of DAMAGED_COUNT_MAX of them the last one is replaced."""
    number = 1  # each is a damage that was found once
    while fs.exists(aside := path.with_name(f"{path.name}{DAMAGED_SUFFIX}{number}")) and number < DAMAGED_COUNT_MAX:
        number += 1
    fs.rename(path, aside)
    fs.fsync_dir(path.parent)
    _log.warning("config.damaged_kept", file=str(path), kept=str(aside))


def tell(path: Path, problem: str) -> None:
    """Log that a file could not be used as it is."""
    _log.warning("config.unreadable", **failure_fields(StoreCorruptedError(problem, file=path)))


def _read(fs: FileSystem, path: Path, check: Callable[[bytes, str], None]) -> tuple[bytes | None, str]:
    """The bytes, and what is wrong with them; None: there are none to look at."""
    try:
        data = read_bytes(fs, path)
    except NoRegularFileError:
        return None, f"config/{path.name} is no regular file"
    except OSError as error:
        return None, f"config/{path.name} cannot be read: {error.strerror or error}"
    if data is None:
        return None, ""
    if not data:
        return None, f"config/{path.name} is empty"
    try:
        check(data, path.name.removesuffix(BACKUP_SUFFIX))
    except StoreCorruptedError as error:
        return data, error.message if path.suffix != BACKUP_SUFFIX else f"{path.name}: {error.message}"
    return data, ""
