"""Row T14: point queries by key in the cold tier."""

import os
import pathlib
import random
import statistics
import time
from collections.abc import Mapping

from benchmarks.figures import OURS, Metric, at_most
from benchmarks.row import Context, Row
from benchmarks.sizes import TINY, Sizes
from gateway.shards.cold_objects import UriObjects
from pipeline.archive import ship_cold
from store.cold.objects import PageCache
from store.cold.reader import ColdReader
from tests.support.archives import BEGIN_MILLIS, BROKER, message, write_log
from tests.support.object_store import CREDENTIALS, ObjectStore, running_object_store

TOPIC = "orders"
REQUESTS, TRIPS, KNOWN_TRIPS = "requests, first query", "p50, first query", "p50, fences known"
LATENCY_MILLIS = 50
MESSAGE_COUNT, FILE_BYTES, QUERY_COUNT = 40_000, 4 << 20, 60
MESSAGE_COUNT_TINY, QUERY_COUNT_TINY = 2_000, 5
MILLIS_BETWEEN = 10
WINDOW_MILLIS = 500
CACHE_BYTES = 64 << 20


class ColdTier(Row):
    """Row T14."""

    number = "T14"
    title = "Point query by key in the cold tier"
    what = (
        f"moto's S3 answers each request {LATENCY_MILLIS} ms late: one round trip. The query names a key and the second around "
        "it, and reads the message. First query: of a gateway that knows the manifest and nothing else. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(REQUESTS, "requests", lower_is_better=True, target=at_most(6, "requests"), sides=(OURS,)),
            Metric(TRIPS, "round trips", lower_is_better=True, target=at_most(6, "round trips"), sides=(OURS,)),
            Metric(KNOWN_TRIPS, "round trips", lower_is_better=True, sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        count = MESSAGE_COUNT_TINY if self.sizes.name == TINY.name else MESSAGE_COUNT
        os.environ.update(CREDENTIALS)
        with context.directory() as directory, running_object_store() as server:
            messages = (message(n, keys=f"key{n}", body=b"x" * 400) for n in range(count))
            store = write_log(
                directory / "store",
                messages,
                file_bytes=FILE_BYTES if count == MESSAGE_COUNT else 1 << 18,
                millis_between=MILLIS_BETWEEN,
            )
            server.fs.create_dir("cold")
            shipped = ship_cold.run(store, server.uri("cold/tier"), broker_name=BROKER).counts["record_count"]
            server.tell("delay", LATENCY_MILLIS)
            return self._query(server, directory, shipped)

    def _query(self, server: ObjectStore, directory: pathlib.Path, message_count: int) -> dict[str, float]:
        chosen = random.Random(14)  # the same messages in each round
        requests: list[float] = []
        first: list[float] = []
        known: list[float] = []
        for number in range(QUERY_COUNT_TINY if self.sizes.name == TINY.name else QUERY_COUNT):
            cache = PageCache(directory / f"cache{number}", CACHE_BYTES)
            reader = ColdReader("tier", BROKER, UriObjects(server.uri("cold/tier")), cache)
            reader.range()
            server.request_count()
            asked = chosen.randrange(message_count)
            first.append(_seconds(reader, asked))
            requests.append(server.request_count())
            # Another message of the same file, most likely of other pages.
            near = min(max(asked + chosen.choice((-1, 1)) * 200, 0), message_count - 1)
            known.append(_seconds(reader, near))
        trip = LATENCY_MILLIS / 1000
        return {
            REQUESTS: statistics.median(requests),
            TRIPS: statistics.median(first) / trip,
            KNOWN_TRIPS: statistics.median(known) / trip,
        }


def _seconds(reader: ColdReader, number: int) -> float:
    """How long it takes to find a message of the log by its key."""
    stored_millis = BEGIN_MILLIS + number * MILLIS_BETWEEN
    begin = time.perf_counter()
    hits = reader.search(
        TOPIC, f"key{number}", begin_millis=stored_millis - WINDOW_MILLIS, end_millis=stored_millis + WINDOW_MILLIS
    )
    found = [reader.record(offset) for offset in hits.commit_log_offsets]
    seconds = time.perf_counter() - begin
    if hits.problem is not None or [record.keys for record in found] != [(f"key{number}",)]:
        raise RuntimeError(f"key{number} was not found: {hits}")
    return seconds
