"""Takes a backup of a store that may be served meanwhile, and checks the backups of a place.

What a backup holds, in the order in which it is read:

- `config/` and, of `reput/commitlog/`, the snapshot and the positions of light queues. They have what the log has forgotten:
  positions of queues whose messages expired. What they say more than the log does, as replicas had not confirmed it yet, is
  a note.
- The log up to the mark of its owner: on the disk, on its replicas, and never in the middle of an atomic request
  (`pipeline/scan/log_files.py`). Only what no earlier backup has is read and copied.
- `config/topics.json`: it has a topic before the log has its first message, so it is read last. So are the epochs of the
  log, which are cut at its end when it is restored.

The owner is not asked and not disturbed. The place gets pieces and files first, then the manifest that names them.
"""

import contextlib
import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from cli.backup.manifest import (
    KEPT_FOLDERS,
    Backup,
    KeptFile,
    LogPiece,
    decode_backup,
    encode_backup,
    is_manifest_name,
    is_object_name,
    is_state_of_log,
)
from cli.backup.places import TEMPORARY_SUFFIX, DirectoryPlace, Place, alone, read_backups
from commitlog_svc.recovery.safe_point import SNAPSHOT_NAME
from commitlog_svc.replication.epochs import EPOCHS_NAME
from pipeline.job import JobReport
from pipeline.object_root import ObjectRoot
from pipeline.scan.log_files import EMPTY_HEAD, LogFile, LogFileGoneError, ReadableLog, readable_log, safe_offset
from store.errors import DiskFullError, ServiceUnavailableError, UnsupportedStoreError
from store.files.config_file import read_config_file
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import NoRegularFileError, read_bytes, read_derived
from store.files.mapped_files import MappedFile
from store.format.paths import topics_file
from store.walk.checks import FullCheck
from store.walk.cursor import OneFile, RecordCursor
from store.walk.record_runs import RunCheck

# Of one place; the oldest are removed.
KEEP_COUNT = 30
# The snapshot may be replaced while the files beside it are read; after so many attempts a restore does without.
SNAPSHOT_READ_COUNT_MAX = 3
_TOPICS = topics_file("")
_EPOCHS = f"{KEPT_FOLDERS[1]}/{EPOCHS_NAME}"
SNAPSHOT_PATH = f"{KEPT_FOLDERS[1]}/{SNAPSHOT_NAME}"
HASH_BYTES = 4 << 20
OnProgress = Callable[[int, int], None]


def take_backup(
    store: Path,
    place: DirectoryPlace | ObjectRoot,
    broker_name: str,
    *,
    keep: int = KEEP_COUNT,
    allow_gap: bool = False,
    fs: FileSystem | None = None,
    clock: Callable[[], float] = time.time,
    on_progress: OnProgress = lambda done, total: None,
) -> JobReport:
    """Takes a backup; returns counts, notes, and a finding for each damage.

    Args:
        store: the store root; it is only read, and services may write to it meanwhile.
        place: where the backups of this shard are kept.
        broker_name: the shard.
        keep: of the backups there so many stay, the newest; at least 1.
        allow_gap: go on behind backups that have no byte in common with the log.
        fs: the disk port of the store.
        clock: seconds since 1970.
        on_progress: called with the bytes of log that are done, and of all that no backup has.

    Raises:
        UnsupportedStoreError: it is no store of Reput's, it is empty or has a gap, or the place has backups of another log.
        StoreLockedError: another process makes a backup there.
        ServiceUnavailableError: the log ends before the newest backup, as that of a replica that is behind.
        DiskFullError, FlushFailedError, ServiceUnavailableError, ...: the place took no more; its backups are as they were.
    """
    fs = fs or RealFileSystem()
    readable_log(fs, store)  # what is no store leaves no lock at the place
    with alone(place, clock) as refuse_other_run:
        return _Taking(store, place, broker_name, fs, refuse_other_run, on_progress).run(keep, clock, allow_gap)


class _Taking:
    def __init__(
        self,
        store: Path,
        place: DirectoryPlace | ObjectRoot,
        broker_name: str,
        fs: FileSystem,
        refuse_other_run: Callable[[], None],
        on_progress: OnProgress,
    ) -> None:
        self._store = store
        self._place = place
        self._broker_name = broker_name
        self._fs = fs
        self._refuse_other_run = refuse_other_run
        self._on_progress = on_progress
        self._present: dict[str, int] = {}
        self._left_count = 0
        self._report = JobReport.begin("backup")
        self._read_bytes = self._copied_bytes = 0

    def run(self, keep: int, clock: Callable[[], float], allow_gap: bool) -> JobReport:
        report = self._report
        backups, damages = read_backups(self._place)
        report.findings += [{"kind": "backup_damaged", "what": damage.message} for damage in damages]
        self._present = self._place.sizes()
        self._left_count = sum(is_object_name(name.removesuffix(TEMPORARY_SUFFIX)) for name in self._present)
        contents = _read_beside(self._fs, self._store)
        taken_millis = int(clock() * 1000)  # before the mark: what was stored and flushed by then is in the backup
        for path in [path for path in contents if path.encode(errors="ignore").decode() != path]:
            report.notes.append(
                f"{path.encode(errors='backslashreplace').decode()} is not in the backup: its name is no text"
            )
            del contents[path]
        log = self._log()
        topics = read_config_file(self._fs, Path(topics_file(str(self._store))))
        if topics.problem:
            report.notes.append(topics.problem)
        if topics.content is not None:
            contents[_TOPICS] = topics.content
        epochs = read_derived(self._fs, self._store / _EPOCHS)
        if epochs is not None:
            contents[_EPOCHS] = epochs
        ahead = (snapshot_offset(contents.get(SNAPSHOT_PATH)) or 0) - log.end_offset
        if ahead > 0:
            report.notes.append(
                f"the positions of queues are {ahead} bytes ahead of the end of this backup, as replicas had not confirmed "
                "these bytes yet: a store restored from it begins queues whose messages had all expired at 0"
            )
        base = backups[-1] if backups else None
        if base is not None:
            self._refuse_other_log(base, log, allow_gap)
            if base.end_offset == log.end_offset:  # else a clock that went back gives it a name before the one before
                taken_millis = max(taken_millis, base.taken_millis + 1)
        try:
            pieces = self._pieces(log, base)
            files = tuple(self._keep_file(path, content) for path, content in sorted(contents.items()))
        except DiskFullError as error:
            if base is None or damages:
                raise
            self._remove_old(backups, keep)  # else a full disk would stay full: only a whole backup removes old ones
            raise DiskFullError(
                f"{error.message} What none of the newest {keep} backups needs was removed: run it again; if there is too "
                "little room still, give a smaller --keep or another place",
                **error.metadata,
            ) from error
        self._refuse_other_run()
        backup = Backup(self._broker_name, taken_millis, pieces, files)
        data = encode_backup(backup)
        decode_backup(data, backup.name)
        self._place.put_bytes(backup.name, data)
        lost = self._lost(backup)
        if lost:
            self._place.delete(backup.name)
            raise UnsupportedStoreError(
                f"{lost[0]} was removed from {self._place} while the backup was made: run it again, and let no other "
                "program remove anything there",
                directory=str(self._place),
            )
        if base is None and self._left_count and not damages:
            report.notes.append(
                f"there was no backup, and {self._left_count} objects of one: they stay, and the next run removes what no "
                "backup needs. A first copy that was killed leaves them; or somebody removed the manifests"
            )
        elif not damages:  # else what they name is not known
            self._remove_old([*(each for each in backups if each.name != backup.name), backup], keep)
        report.counts |= {
            "begin_offset": backup.begin_offset,
            "end_offset": backup.end_offset,
            "log_bytes": backup.end_offset - backup.begin_offset,
            "copied_bytes": self._copied_bytes,
            "file_count": len(files),
        }
        report.outputs["backup"] = f"{self._place}/{backup.name}"
        return report.end()

    # -- what is read

    def _log(self) -> ReadableLog:
        log = readable_log(self._fs, self._store)
        mark = log.mark if log.is_live else safe_offset(self._fs, self._store)
        if mark is None:
            raise UnsupportedStoreError(
                f"{self._store} is held by a RocketMQ broker, or was never served by Reput, so nothing says how much of its "
                "log is on the disk: start `reput serve --store` on it, or copy the log with `reput serve --mirror`",
                directory=self._store,
            )
        files = [file for file in log.files if file.first_offset < mark]
        if not files:
            raise UnsupportedStoreError(f"the log of {self._store} is empty: nothing to back up", directory=self._store)
        for before, after in pairwise(files):
            if before.last_offset != after.first_offset:
                raise UnsupportedStoreError(
                    f"the log of {self._store} has a gap: {before.path} ends at commit-log offset {before.last_offset}, and "
                    f"the next file is {after.path}. Nothing was backed up: bring back what is missing",
                    directory=self._store,
                    commitLogOffset=before.last_offset,
                )
        end = min(mark, files[-1].last_offset)
        if not log.is_live and self._goes_on(log.files, end):
            what = (
                f"records behind commit-log offset {end} are not in this backup: the last stop was not clean, or a broker "
                "wrote them; start `reput serve` on the store, and back it up again"
            )
            self._report.findings.append({"kind": "log_not_whole", "commit_log_offset": end, "what": what})
        self._report.notes += log.notes()
        return ReadableLog(files, end, mark, log.is_live, log.held)

    def _goes_on(self, files: Iterable[LogFile], end: int) -> bool:
        for file in files:
            if file.first_offset <= end < file.last_offset:
                opened = file.open(self._fs)
                try:
                    return opened.read(end, len(EMPTY_HEAD)).strip(b"\0") != b""
                finally:
                    opened.close()
        return False

    def _refuse_other_log(self, base: Backup, log: ReadableLog, allow_gap: bool) -> None:
        """UnsupportedStoreError unless the newest backup is of this log, ServiceUnavailableError if the log is behind it."""
        compared = self._compared(base, log)
        where = f"{self._place} has backups under the name {self._broker_name!r}"
        if compared is None and (not allow_gap or log.end_offset < base.end_offset):
            raise UnsupportedStoreError(
                f"{where} up to commit-log offset {base.end_offset}, and this log begins at {log.files[0].first_offset}: it "
                "has no byte that tells whether it is the same log. If it is, and retention removed the files between, run it "
                "once with --allow-gap. If it is another one, name another place, or the shard with --broker-name",
                directory=str(self._place),
                brokerName=self._broker_name,
            )
        if compared is not None and not compared[1]:
            piece = compared[0]
            raise UnsupportedStoreError(
                f"{where} of another log: the bytes {piece.begin} to {min(piece.end, log.end_offset)} differ. A store that was "
                "restored to an earlier moment is another log, too. Name another place, or the shard with --broker-name",
                directory=str(self._place),
                brokerName=self._broker_name,
            )
        if log.end_offset < base.end_offset:
            raise ServiceUnavailableError(
                f"the log of {self._store} ends at commit-log offset {log.end_offset}, and the newest backup in {self._place} "
                f"at {base.end_offset}; they agree before. If it is a replica, it is {base.end_offset - log.end_offset} bytes "
                "behind: run it again when it has caught up, or back up the leader. If the log was cut by a repair or a "
                "restore, see docs/backup.md",
                service="backup",
            )

    def _compared(self, base: Backup, log: ReadableLog) -> tuple[LogPiece, bool] | None:
        """The last piece that both have, the sound ones first, and whether it is the same; None: they have none."""
        files = {file.first_offset: file for file in log.files}
        for piece in sorted(base.pieces, key=lambda piece: (piece.damage is not None, -piece.begin)):
            file = files.get(piece.file_offset)
            end = min(piece.end if piece.damage is None else piece.damage, log.end_offset)
            if file is None or end <= piece.begin:
                continue
            # Retention may have removed the file since, and the object may be missing.
            with contextlib.suppress(FileNotFoundError):
                wanted = piece.sha256 if end == piece.end else self._sha_of_object(piece, end - piece.begin)
                return piece, _sha_of_file(file, piece.begin, end) == wanted
        return None

    def _sha_of_object(self, piece: LogPiece, size_bytes: int) -> str:
        """Of its first bytes."""
        digest, left = hashlib.sha256(), size_bytes
        for part in self._place.parts(piece.name):
            digest.update(part[:left])
            left -= len(part)
            if left <= 0:
                break
        return digest.hexdigest()

    def _pieces(self, log: ReadableLog, base: Backup | None) -> tuple[LogPiece, ...]:
        """The pieces of the log; those that the place lacks are copied."""
        before = base.pieces if base is not None else ()
        sizes = {file.first_offset: file.last_offset - file.first_offset for file in log.files}
        # A damaged piece is read again: its file may be whole by now, and if not, this run tells it, too. So is one of a
        # file that was not finished then: in one backup all pieces of a file name the same size.
        known = [
            piece
            for piece in before
            if self._has(piece) and piece.damage is None and sizes.get(piece.file_offset) == piece.file_size_bytes
        ]
        edges = {edge for piece in before for edge in (piece.begin, piece.end)}
        first = log.files[0].first_offset
        if base is not None and base.end_offset < first:
            self._report.notes.append(
                f"the log from {base.end_offset} to {first} is in no backup: back up more often than retention removes files"
            )
        missing = [(file, list(_cut(_missing(file, log.end_offset, known), edges))) for file in log.files]
        total = sum(end - begin for _, ranges in missing for begin, end in ranges)
        pieces: list[LogPiece] = []
        self._on_progress(0, total)
        for file, ranges in missing:
            own = [piece for piece in known if piece.file_offset == file.first_offset]
            try:
                own += [self._copy(file, begin, end, total) for begin, end in ranges]
            except LogFileGoneError:
                self._report.notes.append(
                    f"retention removed {file.path} while the backup was made: it begins behind it"
                )
                pieces = []  # and all before it
                continue
            pieces += sorted(own, key=lambda piece: piece.begin)
        if not pieces:
            raise LogFileGoneError(f"retention has removed all files of {self._store}: run the backup again")
        return tuple(pieces)

    def _copy(self, file: LogFile, begin: int, end: int, total: int) -> LogPiece:
        opened = file.open(self._fs)
        try:
            cursor = RecordCursor(OneFile(opened), begin, RunCheck(FullCheck(None)), end_offset=end)
            for _ in cursor:
                pass
            if cursor.offset < end:
                what = (
                    f"{cursor.damage.message} It is backed up as it is: repair it (`reput fsck`), and back it up again"
                )
                self._report.findings.append({"kind": "log_damaged", "commit_log_offset": cursor.offset, "what": what})
            data = mapped(opened, begin, end)
            damage = cursor.offset if cursor.offset < end else None
            piece = LogPiece(file.first_offset, file.last_offset - file.first_offset, begin, end, _sha_of(data), damage)
            if not self._has(piece):
                self._refuse_other_run()
                self._place.put_bytes(piece.name, data)
                self._copied_bytes += piece.size_bytes
                self._present[piece.name] = piece.size_bytes
        finally:
            opened.close()
        self._read_bytes += piece.size_bytes
        self._on_progress(self._read_bytes, total)
        return piece

    def _has(self, item: LogPiece | KeptFile) -> bool:
        """Whether the place has it: its name has the range and the SHA-256."""
        return self._present.get(item.name) == item.size_bytes

    def _keep_file(self, path: str, content: bytes) -> KeptFile:
        file = KeptFile(path, len(content), hashlib.sha256(content).hexdigest())
        if not self._has(file):
            self._place.put_bytes(file.name, content)
            self._present[file.name] = file.size_bytes
        return file

    # -- what is removed

    def _lost(self, backup: Backup) -> list[str]:
        present = self._place.sizes()
        return [name for name, size_bytes in backup.sizes.items() if present.get(name) != size_bytes]

    def _remove_old(self, backups: list[Backup], keep: int) -> None:
        """Removes all but the newest backups, then what none of these needs, also what killed runs left."""
        backups.sort(key=lambda backup: backup.name)
        kept, old = backups[-keep:], backups[:-keep]
        for backup in old:
            self._refuse_other_run()
            self._place.delete(backup.name)
        named = {name for backup in kept for name in backup.sizes} | {backup.name for backup in kept}
        for name in self._place.sizes():
            final_name = name.removesuffix(TEMPORARY_SUFFIX)
            is_left = is_object_name(final_name) or (is_manifest_name(final_name) and final_name != name)
            if is_left and name not in named:
                self._refuse_other_run()
                self._place.delete(name)
        self._report.counts |= {"backup_count": len(kept), "removed_backup_count": len(old)}


def _missing(file: LogFile, log_end_offset: int, known: Iterable[LogPiece]) -> Iterator[tuple[int, int]]:
    """The ranges of a log file that no known piece has."""
    at = file.first_offset
    for piece in sorted(
        (piece for piece in known if piece.file_offset == file.first_offset), key=lambda each: each.begin
    ):
        if at < piece.begin:
            yield at, piece.begin
        at = piece.end
    end = min(file.last_offset, log_end_offset)
    if at < end:
        yield at, end


def _cut(ranges: Iterable[tuple[int, int]], edges: set[int]) -> Iterator[tuple[int, int]]:
    """The ranges, cut at the edges of pieces that there were: what did not change keeps its name."""
    for begin, end in ranges:
        yield from pairwise([begin, *sorted(edge for edge in edges if begin < edge < end), end])


def _read_beside(fs: FileSystem, root: Path) -> dict[str, bytes]:
    """The files beside the log by their paths below the root; see the top of this file."""
    contents: dict[str, bytes] = {}
    snapshot = root / KEPT_FOLDERS[1] / SNAPSHOT_NAME
    for _ in range(SNAPSHOT_READ_COUNT_MAX):
        contents = dict(_contents(fs, root))
        if contents.get(SNAPSHOT_PATH) == read_bytes(fs, snapshot):
            break
    return contents


def _contents(fs: FileSystem, root: Path) -> Iterator[tuple[str, bytes]]:
    for folder in KEPT_FOLDERS:
        names = fs.listdir(root / folder) if fs.is_dir(root / folder) else []
        # The snapshot first: what it names is then there, unless a later one names something else.
        for name in sorted(names, key=lambda name: (name != SNAPSHOT_NAME, name)):
            if folder == KEPT_FOLDERS[1] and not is_state_of_log(name):
                continue
            if name.endswith(TEMPORARY_SUFFIX) or f"{folder}/{name}" == _TOPICS or not fs.is_file(root / folder / name):
                continue
            try:
                content = read_bytes(fs, root / folder / name)
            except NoRegularFileError:  # replaced since
                continue
            if content is not None:
                yield f"{folder}/{name}", content


def snapshot_offset(content: bytes | None) -> int | None:
    """Up to where a snapshot of the log says something (commit-log offset); None: nothing can be read of it."""
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        return int(json.loads(content or b"")["commit_log_offset"])
    return None


def mapped(file: MappedFile, begin: int, end: int) -> memoryview:
    """The bytes `[begin, end)` of the log as a map of their file; they stay readable when the file is removed."""
    whole = memoryview(mmap.mmap(file.fd, 0, access=mmap.ACCESS_READ))
    return whole[begin - file.first_offset : end - file.first_offset]


def _sha_of(data: memoryview) -> str:
    digest = hashlib.sha256()
    for at in range(0, len(data), HASH_BYTES):
        digest.update(data[at : at + HASH_BYTES])
    return digest.hexdigest()


def _sha_of_file(file: LogFile, begin: int, end: int) -> str:
    with open(file.path, "rb") as source:
        digest, left = hashlib.sha256(), end - begin
        source.seek(begin - file.first_offset, os.SEEK_SET)
        while left > 0 and (part := source.read(min(left, HASH_BYTES))):
            digest.update(part)
            left -= len(part)
    return digest.hexdigest()


def verify_backups(place: Place, *, on_progress: OnProgress = lambda done, total: None) -> JobReport:
    """Reads every object that a backup of a place names and compares its SHA-256; a finding for each that differs."""
    report = JobReport.begin("backup-verify")
    backups, damages = read_backups(place)
    report.findings += [{"kind": "backup_damaged", "what": damage.message} for damage in damages]
    if not backups and not damages:
        what = f"{place} has no backup: name the place with --to, and the shard with --broker-name"
        report.findings.append({"kind": "no_backup", "what": what})
    items: Mapping[str, LogPiece | KeptFile] = {item.name: item for backup in backups for item in backup.items}
    total = sum(item.size_bytes for item in items.values())
    done = 0
    for name, item in sorted(items.items()):
        why = _fault(place, item)
        # A run that removes old backups removes their manifests first; its lock is not taken, so that it need not wait.
        in_ = (
            [backup.name for backup in backups if name in backup.sizes and place.read(backup.name) is not None]
            if why
            else []
        )
        if in_:
            what = (
                f"{name} {why}: remove the object and back up again, which copies it anew; where the log does not have it "
                "any more, bring it back from a copy, or remove these backups"
            )
            report.findings.append({"kind": "object_damaged", "object": name, "backups": in_, "what": what})
        done += item.size_bytes
        on_progress(done, total)
    report.counts |= {"backup_count": len(backups), "object_count": len(items), "read_bytes": total}
    return report.end()


def _fault(place: Place, item: LogPiece | KeptFile) -> str:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        for part in place.parts(item.name):
            digest.update(part)
            size_bytes += len(part)
    except FileNotFoundError:
        return "is missing"
    if size_bytes != item.size_bytes:
        return f"has {size_bytes} bytes, not {item.size_bytes}"
    return "" if digest.hexdigest() == item.sha256 else "has another SHA-256 than the manifest says"
