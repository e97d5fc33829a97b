"""What RocketMQ's own ConsumeQueueExt writes and reads (`QueueExtProbe.java`).

`python -m tests.rocketmq.queue_ext_probe` writes tests/store/format/derived/data/queue_ext.json anew.
"""

import json
import random
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from store.format.derived.queue_ext import QueueExtUnit
from tests.rocketmq import real_broker
from tests.support.waiting import WAIT_SECONDS_MAX

WRITTEN = Path(__file__).parents[1] / "store" / "format" / "derived" / "data" / "queue_ext.json"
FILE_SIZE_BYTES = 256


def ask_probe(*args: str, lines: Iterable[str]) -> list[str]:
    """The lines that QueueExtProbe prints for those of its stdin."""
    done = subprocess.run(
        [
            "java",
            *real_broker.SHORT_LIFE,
            "-Dfile.encoding=UTF-8",
            "-cp",
            real_broker.classpath(),
            "QueueExtProbe",
            *args,
        ],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=WAIT_SECONDS_MAX,
    )
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]  # logback writes there, too


def put_units(directory: Path, file_size_bytes: int, units: Iterable[QueueExtUnit]) -> list[int]:
    """RocketMQ writes units of queue 0 of topic t below a directory; their addresses."""
    lines = (f"{unit.tags_code} {unit.store_time_millis} {unit.bit_map.hex() or '-'}" for unit in units)
    return list(map(int, ask_probe("put", str(directory), str(file_size_bytes), lines=lines)))


def get_units(directory: Path, file_size_bytes: int, addresses: Iterable[int]) -> list[QueueExtUnit | None]:
    """The units that RocketMQ reads there."""
    found: list[QueueExtUnit | None] = []
    for line in ask_probe("get", str(directory), str(file_size_bytes), lines=map(str, addresses)):
        fields = line.split(" ")
        found.append(
            None
            if line == "-"
            else QueueExtUnit(int(fields[0]), int(fields[1]), bytes.fromhex(fields[2].removeprefix("-")))
        )
    return found


def random_units(rng: random.Random, count: int, bit_map_size_max: int) -> list[QueueExtUnit]:
    """Units with bit maps of several lengths, and without."""
    return [
        QueueExtUnit(
            rng.choice((0, 2112, -1, -(2**31), 2**31 - 1, 1_700_000_000_000)),
            rng.randrange(1 << 41),
            rng.randbytes(rng.choice((0, 8, 14, rng.randint(1, bit_map_size_max)))),
        )
        for _ in range(count)
    ]


def main() -> None:
    units = random_units(random.Random(16), 30, 40)
    with tempfile.TemporaryDirectory() as directory:
        addresses = put_units(Path(directory), FILE_SIZE_BYTES, units)
        files = {path.name: path.read_bytes().hex() for path in sorted(Path(directory, "t", "0").iterdir())}
    shown = [[unit.tags_code, unit.store_time_millis, unit.bit_map.hex()] for unit in units]
    written = {"file_size_bytes": FILE_SIZE_BYTES, "units": shown, "addresses": addresses, "files": files}
    WRITTEN.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
