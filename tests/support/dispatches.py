"""DispatchRequests for builder tests: of a fixture's log, or made by hand; and a builder's feeding."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from store.derive.dispatch import DispatchRequest
from store.walk.log_reader import LogReader

RECORD_SIZE_BYTES = 100


def requests_of(root: Path) -> list[DispatchRequest]:
    """Every record of a store's log."""
    return list(LogReader(root).dispatch_requests())


def make_request(
    number: int,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int | None = None,
    time_millis: int = 1_700_000_000_000,
    keys: Iterable[str] = (),
    unique_key: str = "",
    sys_flag: int = 0,
) -> DispatchRequest:
    """The record number `number` of a log whose records all take 100 bytes."""
    return DispatchRequest(
        topic=topic,
        queue_id=queue_id,
        queue_offset=number if queue_offset is None else queue_offset,
        commit_log_offset=number * RECORD_SIZE_BYTES,
        record_size_bytes=RECORD_SIZE_BYTES,
        tags_code=number,
        store_time_millis=time_millis,
        keys=tuple(keys),
        unique_key=unique_key,
        sys_flag=sys_flag,
        prepared_transaction_offset=0,
    )


def feed(
    builder: Any,
    requests: Sequence[DispatchRequest],
    *,
    log_end_offset: int,
    log_first_offset: int = 0,
    batch: int = 97,
) -> None:
    """Hands records to a builder in batches, as a tail would; ends at a batch that is not taken."""
    for at in range(0, len(requests), batch):
        part = requests[at : at + batch]
        if not builder.apply(part, part[-1].next_offset, log_first_offset, log_end_offset):
            return


def file_bytes(directory: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
