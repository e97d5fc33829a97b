"""The two builders over a log that is a list of requests, without a process around them."""

from collections.abc import Sequence
from pathlib import Path

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import saved_queues
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from services.following.following_builder import Checkpointer, FollowingBuilder
from store.derive.dispatch import DispatchRequest
from store.derive.index_keys import index_keys
from store.errors import OffsetOutOfRangeError, RecordNotFoundError
from store.files.checksums import ChecksumTable
from store.files.file_system import FileSystem, RealFileSystem
from store.readers.index_reader import IndexLayout, list_index_files
from tests.support.dispatches import feed, file_bytes

QUEUE_FILE_SIZE = 400  # 20 units
LAYOUT = IndexLayout(50, 101)  # 100 keys a file


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def open_queues(
    root: Path,
    requests: Sequence[DispatchRequest],
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    checkpointer: Checkpointer | None = None,
    is_clean_store: bool = True,
    log_first_offset: int = 0,
    ext_file_size_bytes: int = 0,
) -> ConsumeQueueBuilder:
    """A recovered queue builder that has begun."""
    table = ConsumeQueueTable(root, fs or RealFileSystem(), QUEUE_FILE_SIZE, ext_file_size_bytes=ext_file_size_bytes)
    checkpoint = root / "reput/consumequeue/checkpoint.json"
    table.load(saved=saved_queues(table.fs, checkpoint))
    builder = ConsumeQueueBuilder(table, checkpoint, checkpointer=checkpointer, clock=clock or Clock())
    builder.recover(
        is_clean_store=is_clean_store,
        log_first_offset=log_first_offset,
        log_end_offset=requests[-1].next_offset if requests else log_first_offset,
    )
    builder.begin()
    return builder


def open_index(
    root: Path,
    requests: Sequence[DispatchRequest],
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    checkpointer: Checkpointer | None = None,
    is_clean_store: bool = True,
    log_first_offset: int = 0,
    checksums: ChecksumTable | None = None,
) -> IndexBuilder:
    """A recovered index builder that has begun."""
    files = IndexFileSet(root, fs or RealFileSystem(), LAYOUT, lambda: 1_800_000_000_000, checksums=checksums)
    checkpoint = root / "reput/index/checkpoint.json"
    builder = IndexBuilder(files, checkpoint, checkpointer=checkpointer, clock=clock or Clock())

    offsets = {request.commit_log_offset for request in requests}

    def first_indexed(offset: int) -> int | None:
        if offset >= log_first_offset and requests and offset >= requests[-1].next_offset:
            raise OffsetOutOfRangeError(f"{offset} is outside")
        if offset >= log_first_offset and offset not in offsets:
            raise RecordNotFoundError(f"no record at {offset}")
        found = (r for r in requests if r.commit_log_offset > offset and index_keys(r))
        return next((r.commit_log_offset for r in found if r.commit_log_offset >= log_first_offset), None)

    builder.recover(
        is_clean_store=is_clean_store,
        log_first_offset=log_first_offset,
        log_end_offset=requests[-1].next_offset if requests else log_first_offset,
        first_indexed=first_indexed,
    )
    builder.begin()
    return builder


def follow(builder: FollowingBuilder, requests: Sequence[DispatchRequest], *, log_first_offset: int = 0) -> None:
    """Feeds a builder what it has not applied, up to the end of the list, as a tail would."""
    end = requests[-1].next_offset
    for _ in range(2):  # a batch that is not taken asks for a second beginning
        start = max(builder.start_offset(), log_first_offset)
        feed(
            builder,
            [request for request in requests if request.commit_log_offset >= start],
            log_end_offset=end,
            log_first_offset=log_first_offset,
        )
        if builder.progress.next_offset == end:
            return
    raise AssertionError(builder.progress.next_offset)


def queue_bytes(root: Path) -> dict[str, bytes]:
    """Every queue file."""
    return file_bytes(root / "consumequeue")


def index_bytes(root: Path) -> list[bytes]:
    """Every index file in its order; names are times."""
    return [path.read_bytes() for path in list_index_files(RealFileSystem(), root)]
