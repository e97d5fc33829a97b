"""A shard in memory whose log has lost its front, and the cold tier of its sealed files beside it."""

from collections.abc import Mapping
from pathlib import Path

from gateway.ports.shard import Shard
from gateway.shards.cold_objects import UriObjects
from pipeline.archive import ship_cold
from store.cold.objects import PageCache
from store.cold.reader import ColdReader
from tests.gateway.shards.archived.archived_shard import shard_over
from tests.support.archives import BROKER, Archived

CACHE_BYTES = 1 << 20


def shipped(made: Archived, out: str) -> str:
    """The sealed files of its log, shipped there."""
    report = ship_cold.run(made.store, out, broker_name=BROKER)
    assert not report.findings, report
    return out


def cold_shard_of(made: Archived, scratch: Path, *, topics: Mapping[str, int] | None = None) -> Shard:
    """The shard after retention, with a cold tier in a directory below `scratch`."""
    uri = shipped(made, f"file://{scratch}/cold")
    reader = ColdReader(uri, BROKER, UriObjects(uri), PageCache(scratch / "cache", CACHE_BYTES))
    return shard_over(made, reader, topics=topics)
