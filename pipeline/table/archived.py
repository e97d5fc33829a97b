"""The archived messages of a topic as an Iceberg table: the archive's own Parquet files, added as they are.

    archive      segments/BROKER/*.json      which files there are: the truth, also of point lookups
    table        manifests of snapshots      the same files of one topic, with their statistics, by the day of storing

The table follows the archive, never the other way round: `archive` publishes a segment without a catalog, and a run adds what
the table lacks and takes out what a newer segment has replaced, in one commit. So a catalog that cannot be reached, or a run
that is killed, costs nothing but a table that is behind (ADR 0175).
"""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from pipeline.archive.segment import ARCHIVE_SCHEMA
from pipeline.job import JobReport
from pipeline.object_files import open_root
from pipeline.object_root import ObjectRoot
from services.object_uri import named
from store.archive import layout
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import check_archive
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

FILES_SCHEMA = pa.schema(
    [
        *(pa.field(field.name, field.type, True) for field in ARCHIVE_SCHEMA),
        *(pa.field(name, pa.binary(), True) for name in ("head", "body", "tail")),
    ]
)


def run(archive: Path | str, topic: str, catalog: "Catalog", table: str, *, broker_name: str = "broker-a") -> JobReport:
    """Brings the table of a topic up to what a shard's archive holds of it.

    Args:
        archive: the archive, or its URI; readers of the table must see it under the same path.
        topic: the topic.
        catalog: where the table is.
        table: `NAMESPACE.TABLE`, made if there is none; the shards of an archive may share it.
        broker_name: the shard.

    Returns:
        Counts, and a finding for each file that Iceberg does not take.

    Raises:
        UnsupportedStoreError: it is no archive.
        StoreCorruptedError: a manifest is damaged.
        InvalidArgumentError: the archive has no message of the topic, or the table is of something else.
        ServiceUnavailableError: the catalog cannot be reached; the table is as it was.
    """
    from pipeline.table.iceberg import TopicTable, refuse_location

    report = JobReport.begin("table")
    base = _base(archive)
    refuse_location(base, "archive")
    fs, root = open_root(archive, "archive")
    check_archive(fs, root)
    files = {
        f"{base}/{file.path}": file
        for segment in ArchiveReader(root, broker_name, fs).segments()
        for file in segment.files
        if file.topic == topic
    }
    if not files:
        raise InvalidArgumentError(
            f"The archive {named(root)} has no message of topic {topic!r} in shard {broker_name!r}: check both names.",
            field="topic",
        )
    target = TopicTable.of_topic(catalog, table, topic, FILES_SCHEMA, archive=base)
    shard = layout.escape(broker_name)

    def is_archived(path: str) -> bool:
        return path.startswith(f"{base}/")

    def is_replaced(path: str) -> bool:
        return is_archived(path) and PurePosixPath(path).name.rsplit("-", 2)[0] == shard

    followed = target.follow(list(files), is_replaced, is_archived)
    report.findings += [
        {"kind": "file_not_added", "file": location, "what": why} for location, why in followed.refused.items()
    ]
    report.counts |= {
        "file_count": len(files),
        "row_count": sum(file.row_count for file in files.values()),
        "added_file_count": followed.added_count,
        "removed_file_count": followed.removed_count,
        "refused_commit_count": target.lost_commit_count,
    }
    report.outputs |= {"table": table, "location": target.location}
    return report.end()


def _base(archive: Path | str) -> str:
    """The archive as a location of Iceberg: without the options of its URI, and without escapes, which Iceberg has none of."""
    place = ObjectRoot.place(archive, "archive")
    if isinstance(place, Path):
        return f"file://{place.absolute()}"
    return unquote(place.uri.partition("?")[0]).rstrip("/")
