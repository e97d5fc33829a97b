"""Makes a store of a backup: the log up to a moment, then queues and index of it.

    |--- backup ---|--------- backup ---------|--- backup ---|
                           ^ moment
                   ^ files of config/, positions: of the newest backup that is not behind the moment, so that they say no
                     more than the log does
                                              ^ log, topics, epochs: of the oldest backup that reaches the moment

A backup reaches a time if it was taken at or after it, and has a record behind the last one of that time, or is the newest:
what was stored while it was made is in the next one, and a clock may have been ahead.

The log ends behind the last record before an offset, or behind the last one stored at or before a time, and never in the
middle of an atomic request: a request that the moment cuts apart is left out. Everything is written and checked beside the
goal (`cli/transfer/staging.py`), which appears whole or not at all.

What consumers have and what waits are records of the log. Services read the state from them, and write RocketMQ's files of
`config/` anew. Topics are not records of the log yet: `topics.json` is that of the backup behind the moment, without the
deletions that came later.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cli.backup.manifest import KEPT_FOLDERS, OFFSET_MAX, Backup, KeptFile, LogPiece
from cli.backup.places import Place, read_backups
from cli.backup.taking import SNAPSHOT_PATH, mapped, snapshot_offset
from cli.repair import Repairer
from cli.times import iso_text, moment_of
from cli.transfer.staging import Staging
from commitlog_svc.recovery.recovery import RequestEnds
from commitlog_svc.replication.epochs import EPOCHS_NAME, EpochFile
from pipeline.job import JobReport
from store.derive.dispatch_walk import walk_columns
from store.errors import InvalidArgumentError, OffsetOutOfRangeError, RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import write_bytes_atomic
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format.checkpoint import DURABLE_MARK_NAME, encode_durable_mark
from store.format.paths import commit_log_dir, log_file_name, own_state_dir, topics_file
from store.format.record import decode_header, decode_record
from store.format.topic import (
    DELETED_MEMBER,
    OWN_MEMBER,
    TopicRows,
    decode_deleted_topics,
    decode_topic_members,
    decode_topic_rows,
    dump_topic_table,
)
from store.walk.checks import FullCheck
from store.walk.cursor import RecordCursor
from store.walk.record_runs import RunCheck

# Records in one step of a walk for a time.
STEP_COUNT = 1 << 16
_TOPICS = topics_file("")
_EPOCHS = f"{KEPT_FOLDERS[1]}/{EPOCHS_NAME}"
OnProgress = Callable[[str, int, int], None]


class Moment(NamedTuple):
    """Up to where a store is restored: an offset or a time; neither: the end of the newest backup.

    Attributes:
        offset: commit-log offset (bytes); no record that reaches beyond it is restored.
        time_millis: milliseconds since 1970; what was written before the last record stored then is restored.
    """

    offset: int | None = None
    time_millis: int | None = None


END = Moment()


def restore_store(
    place: Place,
    out: Path,
    moment: Moment = END,
    *,
    log_only: bool = False,
    fs: FileSystem | None = None,
    on_progress: OnProgress = lambda step, done, total: None,
) -> JobReport:
    """Makes a store; returns counts, notes, and the findings of its audit.

    Args:
        place: where the backups of the shard are kept.
        out: the store root to make; a directory that is empty or does not exist.
        moment: up to where.
        log_only: leave queues and index to the services, which build them when they start.
        fs: the disk port of the store.
        on_progress: called with a step, and the bytes done of all bytes of the log.

    Raises:
        InvalidArgumentError: there is no backup, or `out` is not empty.
        OffsetOutOfRangeError: no backup reaches the moment.
        StoreCorruptedError: an object of the backup is damaged or missing, or its log is damaged where it must be cut.
        DiskFullError, FlushFailedError, ServiceUnavailableError: nothing was made.
    """
    fs = fs or RealFileSystem()
    report = JobReport.begin("restore")
    backups, damages = read_backups(place)
    report.notes += [damage.message for damage in damages]
    reaching = _chosen(place, backups, moment)
    with Staging(out, is_directory=True) as staging:
        root = staging.path
        try:
            backup, end_offset = _make_log(fs, place, root, reaching, moment, on_progress)
            _make_files(fs, place, root, backups, backup, end_offset, report)
        except StoreCorruptedError as error:
            if all(place.read(each.name) is not None for each in backups):
                raise
            raise StoreCorruptedError(
                f"a backup of {place} was removed while it was restored: run it again", file=str(place), offset=0
            ) from error
        if not log_only:
            audit, _ = Repairer(fs, root, lambda done, total: on_progress("queues", done, total)).run(None)
            report.counts |= {"record_count": audit.log.record_count, "queue_count": audit.queue_count}
            report.findings += [
                {"kind": finding.code, "file": finding.file, "byte": finding.byte, "what": finding.what}
                for finding in audit.findings.kept
                if not audit.findings.is_clean
            ]
        staging.publish()
    gaps = [each for each in reaching if each.begin_offset >= end_offset == backup.end_offset]
    if gaps and moment.time_millis is not None:
        report.notes.append(
            f"{gaps[0].name} begins behind this log, at commit-log offset {gaps[0].begin_offset}, and may have records of "
            "that time: restore it by an offset with --to"
        )
    if end_offset < backups[-1].end_offset:
        report.notes.append(
            f"from commit-log offset {end_offset} on this is another log: name another place for its backups, and another "
            "--out for `reput pipeline ship-cold`, whose objects from there on are of the former log"
        )
    report.counts |= {"begin_offset": backup.begin_offset, "end_offset": end_offset}
    report.outputs = {"store": str(out), "backup": f"{place}/{backup.name}"}
    return report.end()


# -- which backup


def _chosen(place: Place, backups: Sequence[Backup], moment: Moment) -> Sequence[Backup]:
    """The backups that reach the moment, the oldest first; of times only by the clock."""
    if not backups:
        raise InvalidArgumentError(f"{place} has no whole backup: name the place and the shard of one", field="from")
    newest = backups[-1]
    if moment.offset is not None:
        reaching = [backup for backup in backups if backup.end_offset >= moment.offset]
        end = f"ends at commit-log offset {newest.end_offset}"
    elif moment.time_millis is not None:
        first = next((n for n, backup in enumerate(backups) if backup.taken_millis >= moment.time_millis), len(backups))
        reaching = list(backups[first:])
        end = f"was taken at {iso_text(moment_of(newest.taken_millis))}"
    else:
        return [newest]
    if not reaching:
        raise OffsetOutOfRangeError(
            f"the newest backup of {place} {end}, before the moment that --to names: leave --to out to restore all of it",
            endOffset=newest.end_offset,
        )
    if moment.offset is not None and moment.offset <= reaching[0].begin_offset:
        raise _before(place, f"begins at commit-log offset {reaching[0].begin_offset}", reaching[0])
    return reaching


def _before(place: Place, begin: str, backup: Backup) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"the log of {place}/{backup.name} {begin}: name a later moment with --to", beginOffset=backup.begin_offset
    )


# -- the log


def _make_log(
    fs: FileSystem, place: Place, root: Path, reaching: Sequence[Backup], moment: Moment, on_progress: OnProgress
) -> tuple[Backup, int]:
    """Writes the log up to the moment, durable on return; returns its backup, and where it ends (commit-log offset)."""
    directory = Path(commit_log_dir(str(root)))
    fs.mkdirs(directory)
    backup = reaching[0]
    pieces = [piece for piece in backup.pieces if moment.offset is None or piece.begin < moment.offset]
    end_offset = _write_log(fs, place, directory, backup, pieces, moment, on_progress)
    for later in reaching[1:] if moment.time_millis is not None else ():
        # With a byte in both they are of one log. A later one that begins behind has less than the moment wants.
        if end_offset == backup.end_offset > later.begin_offset and later.end_offset > end_offset:
            pieces = [piece for piece in later.pieces if piece.end > end_offset]
            backup, end_offset = later, _write_log(fs, place, directory, later, pieces, moment, on_progress)
    return backup, end_offset


def _write_log(
    fs: FileSystem,
    place: Place,
    directory: Path,
    backup: Backup,
    pieces: Sequence[LogPiece],
    moment: Moment,
    on_progress: OnProgress,
) -> int:
    """Writes pieces of a backup, of which the ones before are there, and cuts at the moment; returns where the log ends."""
    total, done = sum(piece.size_bytes for piece in pieces), 0
    for piece in pieces:
        on_progress("log", done, total)
        _write_piece(fs, place, directory / log_file_name(piece.file_offset), piece)
        done += piece.size_bytes
    on_progress("log", done, total)
    fs.fsync_dir(directory)
    files = MappedFileQueue(fs, directory, pieces[-1].file_size_bytes)
    files.load()
    try:
        limit = moment.offset
        if moment.time_millis is not None:
            limit = _end_at_time(place, files, backup, moment.time_millis)
        end_offset = backup.end_offset
        if limit is not None and limit < end_offset:
            end_offset = _end_before(files, limit)
            if end_offset <= backup.begin_offset:
                raise _before(place, "has no whole request before that moment", backup)
            files.truncate(end_offset)
    finally:
        files.close()
    return end_offset


def _write_piece(fs: FileSystem, place: Place, path: Path, piece: LogPiece) -> None:
    """Writes a piece to its log file and compares its SHA-256."""
    fd = fs.open(path, os.O_RDWR | os.O_CREAT)
    try:
        if piece.begin == piece.file_offset:
            fs.fallocate(fd, 0, piece.file_size_bytes)
        at, digest = piece.begin - piece.file_offset, hashlib.sha256()
        for part in _parts(place, piece):
            fs.pwrite(fd, part, at)
            digest.update(part)
            at += len(part)
        _refuse_damaged(place, piece, at + piece.file_offset - piece.begin, digest.hexdigest())
        fs.fdatasync(fd)
    finally:
        fs.close(fd)


def _parts(place: Place, item: LogPiece | KeptFile) -> Iterator[bytes]:
    left = item.size_bytes
    try:
        for part in place.parts(item.name):
            left -= len(part)
            if left < 0:
                raise _damaged(place, item, f"it has more than {item.size_bytes} bytes")
            yield part
    except FileNotFoundError as error:
        raise _damaged(place, item, "it is missing") from error


def _refuse_damaged(place: Place, item: LogPiece | KeptFile, size_bytes: int, sha256: str) -> None:
    if size_bytes != item.size_bytes:
        raise _damaged(place, item, f"it has {size_bytes} bytes, not {item.size_bytes}")
    if sha256 != item.sha256:
        raise _damaged(place, item, "its SHA-256 is not that of the manifest")


def _damaged(place: Place, item: LogPiece | KeptFile, why: str) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"{place}/{item.name} is damaged: {why}. Nothing was restored. Bring the object back from a copy, or restore another "
        "backup; `reput backup --verify` checks all of them",
        file=f"{place}/{item.name}",
        offset=0,
    )


def _end_before(files: MappedFileQueue, limit: int) -> int:
    """Where the last whole request before a commit-log offset ends."""
    file = files.find(limit)
    if file is None or limit == file.first_offset:  # a request lies in one file
        return limit
    full = FullCheck(None)
    cursor = RecordCursor(files, file.first_offset, RunCheck(full), end_offset=limit)
    for _ in cursor:
        pass
    _refuse_damage(file, cursor.offset, limit)
    incomplete = RequestEnds(files, file.first_offset, None).incomplete_request(cursor.offset, full.last_record)
    return incomplete[0].commit_log_offset if incomplete else cursor.offset


def _refuse_damage(file: MappedFile, offset: int, limit: int) -> None:
    """StoreCorruptedError if a walk ended at an offset for damage, not for a record or blank that reaches beyond the limit."""
    if offset >= limit:
        return
    data = file.read(offset, file.last_offset - offset)
    try:
        if not decode_header(data, 0, offset).is_blank:
            decode_record(data, commit_log_offset=offset)
    except RecordCorruptedError as error:
        raise _damaged_log(offset, error) from error


def _damaged_log(offset: int, error: RecordCorruptedError) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"the log was damaged at commit-log offset {offset} when it was backed up: {error.message} Name "
        "an offset before it with --to, or leave --to out",
        file="",
        offset=offset,
    )


def _end_at_time(place: Place, files: MappedFileQueue, backup: Backup, time_millis: int) -> int:
    """Where the last record ends that was stored at or before a time (commit-log offset)."""
    for file in reversed(files.files):
        found = _last_in_file(file, min(file.last_offset, backup.end_offset), time_millis)
        if found is not None:
            return found
    raise _before(place, f"has no record stored at or before {iso_text(moment_of(time_millis))}", backup)


def _last_in_file(file: MappedFile, end: int, time_millis: int) -> int | None:
    at, found = file.first_offset, None
    data = mapped(file, file.first_offset, end)
    while at < end:
        walked = walk_columns(data, at - file.first_offset, at, STEP_COUNT)
        columns, at = walked.columns, walked.next_offset
        fitting = (columns.store_times_millis <= time_millis).nonzero()[0]
        if len(fitting):
            found = int(columns.commit_log_offsets[fitting[-1]] + columns.record_sizes_bytes[fitting[-1]])
        if walked.why is not None:
            if not decode_header(data, at - file.first_offset, at).is_blank:
                raise _damaged_log(at, walked.why)
            return end if found == at else found
    return found


# -- beside the log


def _make_files(
    fs: FileSystem,
    place: Place,
    root: Path,
    backups: Sequence[Backup],
    backup: Backup,
    end_offset: int,
    report: JobReport,
) -> None:
    before = [each for each in backups if each.end_offset <= end_offset]
    base = backup if end_offset == backup.end_offset else before[-1] if before else None
    for file in base.files if base is not None else ():
        if file.path not in (_TOPICS, _EPOCHS):
            write_bytes_atomic(fs, root / file.path, _content(place, file))
    if base is None:
        report.notes.append(
            "no backup was taken before that moment: files of config/ that RocketMQ needs are written when the store is "
            "served, and queues whose messages had all expired begin at 0"
        )
    at = snapshot_offset(_content_of(place, base, SNAPSHOT_PATH)) if base is not None else None
    if base is not None and at is not None and not backup.begin_offset < at <= end_offset:
        report.notes.append(
            f"the positions of queues in {base.name} are those at commit-log offset {at}, which this log does not have: queues "
            "whose messages had all expired begin at 0; look at the positions of their groups"
        )
    topics = _content_of(place, backup, _TOPICS)
    if topics is not None:
        earlier = _content_of(place, base, _TOPICS) if base is not None else None
        try:
            topics = topics_at(topics, earlier, end_offset)
        except StoreCorruptedError as error:
            report.notes.append(f"{_TOPICS} of the backup is damaged and is restored as it is: {error.message}")
        write_bytes_atomic(fs, root / _TOPICS, topics)
    own = Path(own_state_dir(str(root), "commitlog"))
    epochs = _content_of(place, backup, _EPOCHS)
    if epochs is not None:
        write_bytes_atomic(fs, own / EPOCHS_NAME, epochs)
        table = EpochFile(fs, own)
        try:
            table.load()
            table.cut(end_offset)
        except StoreCorruptedError:
            fs.unlink(own / EPOCHS_NAME)  # a store does not start with it
            report.notes.append(
                f"{_EPOCHS} of the backup is damaged and is left out: other replicas copy the whole log anew"
            )
    write_bytes_atomic(fs, own / DURABLE_MARK_NAME, encode_durable_mark(end_offset))


def topics_at(topics: bytes, earlier: bytes | None, end_offset: int) -> bytes:
    """A `topics.json` without the deletions at offsets behind the end of the log.

    Args:
        topics: the file as it was later.
        earlier: the file as it was before; a topic whose deletion is undone gets its row of there, and the deletion before it.
        end_offset: the end of the log (bytes).
    """
    deleted = decode_deleted_topics(topics)
    undone = {topic for topic, offset in deleted.items() if offset > end_offset}
    if not undone:
        return topics
    rows, had = decode_topic_rows(topics), decode_topic_rows(earlier) if earlier is not None else TopicRows({}, {})
    members = decode_topic_members(topics)
    left = {name: at for name, at in deleted.items() if name not in undone}
    before = decode_deleted_topics(earlier) if earlier is not None else {}
    left |= {name: before[name] for name in undone if before.get(name, OFFSET_MAX) <= end_offset}
    own = {**members[OWN_MEMBER], DELETED_MEMBER: left}
    back = {topic: had.topics[topic] for topic in undone if topic in had.topics and topic not in rows.topics}
    document = {**members, "topicConfigTable": {}, OWN_MEMBER: own}
    return dump_topic_table(document, {**rows.topics, **back}, rows.unreadable)


def _content_of(place: Place, backup: Backup, path: str) -> bytes | None:
    file = backup.file(path)
    return None if file is None else _content(place, file)


def _content(place: Place, file: KeptFile) -> bytes:
    content = b"".join(_parts(place, file))
    _refuse_damaged(place, file, len(content), hashlib.sha256(content).hexdigest())
    return content
