"""Archives for tests: of the fixture stores, and of logs made here; with brute force over the log beside them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.archive import archive as archive_job
from store.files.file_system import FILE_MODE, FileStamp, PathLike, RealFileSystem
from store.files.locks import OwnerLock
from store.format.checkpoint import encode_durable_mark
from store.format.host import Host
from store.format.record import PreparedMessage, Record, decode_record, encode_blank, patch_record, prepare_record
from store.format.sys_flag import TRANSACTION_MASK, TransactionType
from tests.support.fixture_stores import walk_frames

BROKER = "broker-a"
HOST = Host("10.1.2.3", 10911)
BEGIN_MILLIS = 1_700_000_000_000
FILE_BYTES = 1 << 16


@dataclass(frozen=True)
class Archived:
    """A store, its archive, and every record of its log, oldest first."""

    store: Path
    archive: Path
    records: list[Record]

    def keyed(self, topic: str, key: str) -> list[int]:
        """Commit-log offsets of a topic's records with a key or that unique key, newest first, by brute force."""
        return [
            record.commit_log_offset
            for record in reversed(self.records)
            if record.topic == topic
            and (key in record.keys or record.unique_key == key)
            and record.sys_flag & TRANSACTION_MASK != TransactionType.ROLLBACK
        ]

    def queues(self) -> dict[tuple[str, int], dict[int, Record]]:
        """Records by queue and queue offset."""
        found: dict[tuple[str, int], dict[int, Record]] = {}
        for record in self.records:
            if record.sys_flag & TRANSACTION_MASK in (TransactionType.NONE, TransactionType.COMMIT):
                found.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = record
        return found

    def names(self) -> set[tuple[str, str]]:
        """Every topic and key or unique key."""
        return {(r.topic, key) for r in self.records for key in {*r.keys, r.unique_key} if key}


def archived(store: Path, archive: Path) -> Archived:
    """Archives all of a store, the active file included."""
    report = archive_job.run(None, store, archive, broker_name=BROKER, include_active=True)
    assert not report.findings, report
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(store)]
    assert len(records) == report.counts["record_count"]
    return Archived(store, archive, records)


def message(
    number: int,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    keys: str = "",
    tags: str = "",
    body: bytes = b"x" * 100,
    sys_flag: int = 0,
) -> PreparedMessage:
    """A message of a made log."""
    properties = f"UNIQ_KEY\x01U{number:08d}\x02"
    properties += "".join(f"{name}\x01{value}\x02" for name, value in (("KEYS", keys), ("TAGS", tags)) if value)
    return PreparedMessage(topic, queue_id, body, properties.encode(), BEGIN_MILLIS, HOST, HOST, sys_flag=sys_flag)


def write_log(
    root: Path,
    messages: Iterable[PreparedMessage],
    *,
    file_bytes: int = FILE_BYTES,
    first_offset: int = 0,
    millis_between: int = 1,
    time_of: Callable[[int], int] | None = None,
) -> Path:
    """A store root with a log of these messages in files of that size, closed by blanks as RocketMQ does.

    `time_of` gives the store time of a message by its number; without it times rise by `millis_between`.
    """
    time_of = time_of or (lambda number: BEGIN_MILLIS + number * millis_between)
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    places: dict[tuple[str, int], int] = {}
    data = bytearray()
    begin = first_offset
    for number, prepared in enumerate(messages):
        frame = prepare_record(prepared)
        left = file_bytes - len(data)
        if len(frame) + 8 > left:
            data += encode_blank(left)
            (directory / f"{begin:020d}").write_bytes(data.ljust(file_bytes, b"\0"))
            begin += file_bytes
            data = bytearray()
        queue = (prepared.topic, prepared.queue_id)
        place = places.get(queue, 0)
        places[queue] = place + 1
        patch_record(frame, place, begin + len(data), time_of(number))
        data += frame
    (directory / f"{begin:020d}").write_bytes(data.ljust(file_bytes, b"\0"))
    return root


@contextmanager
def written_to(root: Path, durable_offset: int, *, confirmed_offset: int | None = None) -> Iterator[None]:
    """The store is open as by a commitlog service that has flushed so much, and has so much on its replicas (bytes)."""
    own = root / "reput" / "commitlog"
    own.mkdir(parents=True, exist_ok=True)
    (own / "durable").write_bytes(encode_durable_mark(durable_offset))
    if confirmed_offset is not None:
        (own / "confirmed").write_bytes(encode_durable_mark(confirmed_offset))
    lock = OwnerLock(own / "lock")
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def make_file_ahead(root: Path, *, file_bytes: int = FILE_BYTES) -> Path:
    """The next log file, made before the last one is full: all zeros."""
    last = max((root / "commitlog").iterdir())
    ahead = last.with_name(f"{int(last.name) + file_bytes:020d}")
    ahead.write_bytes(bytes(file_bytes))
    return ahead


class CountingFileSystem(RealFileSystem):
    """Counts what is read.

    Attributes:
        read_bytes: of all reads.
        request_count: of what a file system that is elsewhere is asked, one after the other: each is a round trip.
    """

    def __init__(self) -> None:
        self.read_bytes = 0
        self.request_count = 0

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        data = super().pread(fd, size_bytes, position)
        self.read_bytes += len(data)
        self.request_count += 1
        return data

    def open(self, path: PathLike, flags: int, mode: int = FILE_MODE) -> int:
        self.request_count += 1
        return super().open(path, flags, mode)

    def listdir(self, path: PathLike) -> list[str]:
        self.request_count += 1
        return super().listdir(path)

    def stamp(self, path: PathLike) -> FileStamp:
        self.request_count += 1
        return super().stamp(path)
