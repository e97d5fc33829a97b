"""Outputs of `reput export`: JSON lines on stdout, JSON lines in a file, or a store."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import IO, Any, Protocol

from cli.printing import to_json
from cli.transfer.message_lines import frame_of, line_of, record_of_stored
from cli.transfer.staging import Staging
from store.format.record import Record, decode_record


class Output(Protocol):
    """Takes messages one after another."""

    @property
    def message_count(self) -> int:
        """How many it has."""

    def add_frame(self, topic: str, frame: bytes) -> None:
        """Add a message as the checked bytes of its record."""

    def add_stored(self, message: Any) -> None:
        """Add a message that a gateway sent, with its body."""

    def finish(self) -> None:
        """Make the output visible; it is complete and on the disk then."""


@contextlib.contextmanager
def open_output(out: pathlib.Path | None, *, is_store: bool) -> Iterator[Output]:
    """An output; an unfinished one is removed.

    Raises:
        InvalidArgumentError: `out` exists, or was made meanwhile.
    """
    if is_store:
        assert out is not None
        from cli.printing import progress_bar
        from cli.transfer.new_store import NewStore

        with NewStore(out) as store:
            yield StoreOutput(store, lambda: progress_bar("queues and index", in_bytes=False))
    elif out is None:
        yield LinesOutput(sys.stdout.buffer)
    else:
        with Staging(out) as staging, open(staging.fd, "wb", closefd=False) as file:
            yield LinesOutput(file, staging)


class LinesOutput:
    """JSON lines, always in UTF-8; see `Output`.

    Args:
        file: takes the lines.
        staging: gives the file its name at the end; None for stdout.

    Attributes:
        message_count: how many it has.
    """

    def __init__(self, file: IO[bytes], staging: Staging | None = None) -> None:
        self.message_count = 0
        self._file = file
        self._staging = staging

    def add_frame(self, topic: str, frame: bytes) -> None:
        """See Output."""
        # The walk has compared the CRCs.
        self._add(decode_record(frame, check_body_crc=False, check_properties_crc=False), "")

    def add_stored(self, message: Any) -> None:
        """See Output."""
        self._add(record_of_stored(message), message.broker_name)

    def finish(self) -> None:
        """See Output."""
        self._file.flush()
        if self._staging is not None:
            os.fsync(self._file.fileno())
            self._staging.publish()

    def _add(self, record: Record, broker_name: str) -> None:
        # Half of a surrogate pair has no UTF-8: it is written as a JSON escape.
        self._file.write(f"{to_json(line_of(record, broker_name))}\n".encode(errors="backslashreplace"))
        self.message_count += 1


class StoreOutput:
    """A store; see `Output`.

    Args:
        store: the store that is being made.
        bar: a progress bar for queues and index.
    """

    def __init__(self, store: Any, bar: Any) -> None:
        self._store = store
        self._bar = bar

    @property
    def message_count(self) -> int:
        """See Output."""
        return int(self._store.record_count)

    def add_frame(self, topic: str, frame: bytes) -> None:
        """See Output."""
        self._store.add(topic, frame)

    def add_stored(self, message: Any) -> None:
        """See Output."""
        self._store.add(message.topic, frame_of(record_of_stored(message)))

    def finish(self) -> None:
        """See Output."""
        with self._bar() as (on_progress, _):
            self._store.finish(on_progress)
