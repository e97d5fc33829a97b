"""A shard in memory whose log has lost its front, and the archive of the whole log beside it."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.ports.shard import Shard
from gateway.shards.archived_shard import with_archive
from store.archive.archive_reader import ArchiveReader
from store.archive.lookups import Lookups
from store.errors import OffsetOutOfRangeError, StoreError
from store.format.record import Record
from tests.gateway.memory_shard import shown
from tests.gateway.search.searching import TaggedShard
from tests.support.archives import BROKER, Archived, archived, message, write_log

TOPIC, OLD_TOPIC = "orders", "of-old"
DROPPED_FILE_COUNT = 3
BARRED = ("archive", "folder", "manifest", "index", "index, opened")
DAMAGES = ("no archive", "no manifest", "bad manifest", "bad index", "bad Parquet")


class ShortenedShard(TaggedShard):
    """A shard whose log begins at `first_offset`; its index still points before that."""

    first_offset = 0

    def _outcome(self, offset: int) -> Record | StoreError:
        if offset < self.first_offset:
            return OffsetOutOfRangeError(f"{offset} is gone", firstOffset=self.first_offset, lastOffset=self._end)
        return super()._outcome(offset)


def archived_orders(root: Path, time_of: Callable[[int], int] | None = None) -> Archived:
    """A log of several files and its archive: two queues of `TOPIC`, and a queue of `OLD_TOPIC` in the first file alone."""
    bodies = [b"b" * 50, b"", b"L" * 20_000]
    messages = [
        message(
            n,
            topic=OLD_TOPIC if n in (3, 5) else TOPIC,
            queue_id=n % 2,
            keys="all" + (" AaAa" if n % 7 == 0 else " BBBB" if n % 7 == 1 else ""),
            tags=("", "Aa", "BB", "TagC")[n % 4],
            body=bodies[n % 3],
        )
        for n in range(60)
    ]
    return archived(write_log(root / "store", messages, millis_between=3, time_of=time_of), root / "archive")


def front_of(made: Archived) -> int:
    """Where the log begins after retention has taken some files, in bytes."""
    return int(sorted((made.store / "commitlog").iterdir())[DROPPED_FILE_COUNT].name)


def shard_of(
    made: Archived,
    *,
    archive: Path | None = None,
    kind: type[ShortenedShard] = ShortenedShard,
    topics: Mapping[str, int] | None = None,
) -> Shard:
    """The shard as it is after retention has taken some log files."""
    reader = ArchiveReader(archive or made.archive, BROKER)
    return shard_over(made, reader, kind=kind, topics=topics)


def shard_over(
    made: Archived,
    reader: Lookups,
    *,
    kind: type[ShortenedShard] = ShortenedShard,
    topics: Mapping[str, int] | None = None,
) -> Shard:
    """The shard as it is after retention has taken some log files, which `reader` has."""
    first_offset = front_of(made)
    memory = kind([r for r in made.records if r.commit_log_offset >= first_offset], topics or {TOPIC: 2})
    memory.first_offset = first_offset
    return with_archive(memory.shard(), reader, lambda record, omit_body: shown(record, omit_body=omit_body))


def break_archive(archive: Path, root: Path, damage: str) -> None:
    """A copy of the archive, damaged so."""
    if damage == "no archive":
        return
    shutil.copytree(archive, root)
    manifest = min((root / "segments" / BROKER).iterdir())
    segment = json.loads(manifest.read_text())["segment"]
    if damage == "no manifest":
        for path in sorted((root / "segments" / BROKER).iterdir()):
            path.unlink()
    elif damage == "bad manifest":
        manifest.write_text(manifest.read_text().replace('"record_count": ', '"record_count": 1'))
    elif damage == "bad index":
        path = root / segment["keys_path"]
        path.write_bytes(path.read_bytes()[:100])
    else:
        for file in segment["files"]:
            (root / file["path"]).write_bytes(b"PAR1" + bytes(100))


def bar_archive(archive: Path, root: Path, part: str) -> None:
    """A copy of the archive, a part of which the file system does not let anybody read: also not whoever may all."""
    shutil.copytree(archive, root)
    segments = root / "segments" / BROKER
    manifest = min(segments.iterdir())
    keys = root / json.loads(manifest.read_text())["segment"]["keys_path"]
    if part == "archive":
        barred = root / "archive.json"
    else:
        barred = {"folder": segments, "manifest": manifest, "index": keys, "index, opened": keys}[part]
    if barred.is_dir():
        shutil.rmtree(barred)
    else:
        barred.unlink()
    if part == "index, opened":
        barred.mkdir()  # is opened, and refuses to be read
    else:
        barred.symlink_to(barred)


def archive_of_first_file(made: Archived, root: Path) -> Path:
    """An archive that has the log's first file and nothing else."""
    store = root / "store" / "commitlog"
    store.mkdir(parents=True)
    first = min((made.store / "commitlog").iterdir())
    (store / first.name).write_bytes(first.read_bytes())
    archived(root / "store", root / "archive")
    return root / "archive"
