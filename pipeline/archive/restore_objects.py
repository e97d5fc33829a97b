"""A restore into an object store: the log, its queues and indexes, and the topic table, as objects.

    OUT/commitlog/restore.begun.json   first: names the run that owns OUT; while it is there, readers refuse the store
    OUT/commitlog/...                  each by the task that made it on its own disk and compared its SHA-256
    OUT/consumequeue/... index/...     made from these by the shuffle of the job `rebuild`
    OUT/restore.json                   every file with its size
    then restore.begun.json is removed: that moment makes the store complete

A killed restore is run again: it writes the same names, and removes all other objects.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pipeline.archive.restore_segment import restore_log_file
from pipeline.object_files import UNFINISHED_NAME, ObjectFileSystem, open_root
from pipeline.progress import RunTasks
from pipeline.rebuild.layout import StoreLayout
from pipeline.rebuild.object_out import FOLDERS, settle
from pipeline.rebuild.object_root import ObjectRoot
from pipeline.rebuild.out import index_names
from pipeline.rebuild.plan import plan_of
from pipeline.rebuild.rebuild import MakeAll, Rebuild
from pipeline.rebuild.target import ObjectTarget, Target, encode_marker
from pipeline.report import JobReport
from store.archive.manifest import read_segment
from store.errors import InvalidArgumentError
from store.files.file_system import RealFileSystem
from store.format.paths import commit_log_dir, log_file_name, topics_file

BEGUN_NAME = f"{commit_log_dir('')}/{UNFINISHED_NAME}"
MANIFEST_NAME = "restore.json"
LOG_FOLDER, CONFIG_FOLDER = "commitlog", "config"


def refuse_objects(root: ObjectRoot) -> None:
    """InvalidArgumentError for a place with a finished restore or other data, or whose bucket does not exist."""
    names = root.top_names()
    is_begun = root.read(BEGUN_NAME) is not None
    if MANIFEST_NAME in names and not is_begun:
        raise _finished(root)
    others = sorted(names - ({MANIFEST_NAME, LOG_FOLDER, CONFIG_FOLDER, *FOLDERS} if is_begun else set()))
    if others:
        raise InvalidArgumentError(
            f"{root} holds other data ({others[0]}): name a prefix without objects.", field=root.field
        )


def restore_to_objects(
    root: ObjectRoot,
    archive: str,
    broker_name: str,
    first_offsets: Sequence[int],
    topics: bytes | None,
    *,
    run_tasks: RunTasks,
    make_all: MakeAll,
    layout: StoreLayout,
    report: JobReport,
    parallelism: int = 1,
    clock: Callable[[], float] = time.time,
) -> None:
    """Makes the store.

    Args:
        root: the place.
        archive: the archive, or its URI.
        broker_name: the shard.
        first_offsets: of the log files to restore (bytes), ascending, without a gap.
        topics: the topic table; None without one.
        run_tasks: runs the tasks that restore log files.
        make_all: mode `shuffle` of a rebuild.
        layout: sizes of queue and index files.
        report: receives counts and notes.
        parallelism: tasks that run at once.
        clock: seconds since 1970.

    Raises:
        StoreLockedError: another restore has taken over the place.
        StoreCorruptedError: the archive is damaged.
        InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
    """
    refuse_objects(root)
    root.delete(MANIFEST_NAME)  # of a run that was killed just before its end
    target = ObjectTarget(root, uuid.uuid4().hex, BEGUN_NAME, "restore")
    first_begun_millis = target.take(int(clock() * 1000))
    if MANIFEST_NAME in root.top_names():  # another run has completed before it could see this run's id
        root.delete(BEGUN_NAME)
        raise _finished(root)
    sizes = run_tasks("restore", partial(_restore_one, archive, broker_name, target), first_offsets)
    wanted = dict(sizes)
    fs = ObjectFileSystem(root.uri, root.field, reads_unfinished=True)
    plan, notes = plan_of(fs, fs.root, root, layout, parallelism=parallelism, is_flushed=False, place=root.uri)
    made = Rebuild(RealFileSystem(), plan, run_tasks, report, make_all=make_all).make_in(
        target, index_names(first_begun_millis)
    )
    report.notes += notes
    wanted |= dict(made.sizes())
    if topics is not None:
        name = topics_file("")
        target.put(name, topics)
        wanted[name] = len(topics)
    settle(target, (LOG_FOLDER, CONFIG_FOLDER, *FOLDERS), wanted)
    files = [{"path": name, "size_bytes": size_bytes} for name, size_bytes in sorted(wanted.items())]
    root.put_bytes(MANIFEST_NAME, encode_marker({"version": 1, "run": target.run, "files": files}))
    root.delete(BEGUN_NAME)


def _restore_one(archive: str, broker_name: str, target: Target, first_offset: int) -> tuple[str, int]:
    """One Spark task: restores one log file on its own disk and sends it; returns its name and size in bytes."""
    archive_fs, archive_root = open_root(archive, "archive")
    segment = read_segment(archive_fs, archive_root, broker_name, first_offset)
    with target.working_root() as root:
        size_bytes = restore_log_file(RealFileSystem(), archive_root, segment, root, archive_fs=archive_fs)
        path = Path(commit_log_dir(str(root))) / log_file_name(first_offset)
        target.keep(root, path)
        return path.relative_to(root).as_posix(), size_bytes


def _finished(root: ObjectRoot) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{root} holds a finished restore ({MANIFEST_NAME}): name another place, or remove it first.", field=root.field
    )
