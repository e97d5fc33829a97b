"""One program with an embedded store, in a process of its own: what import, open, queries and appends take.

python -m benchmarks.embedded DIRECTORY QUERY_COUNT        prints one JSON object
"""

import time

_cpu, _wall = time.process_time(), time.perf_counter()

import reput_embedded  # noqa: E402  # timed

IMPORT_CPU_SECONDS, IMPORT_SECONDS = time.process_time() - _cpu, time.perf_counter() - _wall

import json  # noqa: E402
import pathlib  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402

from reput_client import NewMessage  # noqa: E402

TOPIC = "Bench"
MESSAGE_BYTES = 1024
MESSAGE_COUNT = 1_000


def _median_millis(call: Callable[[int], object], count: int) -> float:
    """Of `count` calls, after half as many to warm up."""
    samples = []
    for number in range(-(count // 2), count):
        start = time.perf_counter()
        call(number % MESSAGE_COUNT)
        if number >= 0:
            samples.append((time.perf_counter() - start) * 1000)
    return statistics.median(samples)


def _disk_mib(root: pathlib.Path) -> float:
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*")) / (1 << 20)


def _memory_mib() -> float:
    (line,) = (line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) / 1024


def measure(root: pathlib.Path, query_count: int) -> dict[str, float]:
    """All figures, on a new store."""
    start = time.perf_counter()
    with reput_embedded.open(root) as store:
        opened = time.perf_counter() - start
        memory = _memory_mib()
        body = b"x" * MESSAGE_BYTES
        receipts = store.append_all(NewMessage(TOPIC, body, keys=[f"key-{i}"]) for i in range(MESSAGE_COUNT))
        disk = _disk_mib(root)

        def by_key(number: int) -> None:
            (message,) = store.by_key(TOPIC, f"key-{number}")
            assert message.offset_msg_id == receipts[number].offset_msg_id

        def by_id(number: int) -> None:
            assert store.by_id(receipts[number].offset_msg_id).keys == (f"key-{number}",)

        def by_unique_key(number: int) -> None:
            assert len(list(store.by_unique_key(TOPIC, receipts[number].unique_key))) == 1

        def by_offset(number: int) -> None:
            place = receipts[number]
            assert len(list(store.by_offset(TOPIC, place.queue_id, place.queue_offset, max_messages=1))) == 1

        by_key(0)  # waits until all is built
        queries = {"key": by_key, "id": by_id, "unique_key": by_unique_key, "offset": by_offset}
        values = {kind: _median_millis(query, query_count) for kind, query in queries.items()}
        values["append"] = _median_millis(lambda _: store.append(TOPIC, body), query_count)
    return values | {
        "import_cpu_seconds": IMPORT_CPU_SECONDS,
        "import_seconds": IMPORT_SECONDS,
        "open_seconds": opened,
        "memory_mib": memory,
        "disk_mib": disk,
    }


if __name__ == "__main__":
    print(json.dumps(measure(pathlib.Path(sys.argv[1]), int(sys.argv[2]))))
