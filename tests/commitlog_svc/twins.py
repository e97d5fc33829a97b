"""Two logs that get the same requests: one the fast way where it can, one always the plain way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.append.append_path import KERNELS
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage
from store.compiled import built, loading
from store.errors import StoreError
from tests.commitlog_svc.support import BORN_HOST

TIME_MILLIS = 1_700_000_000_123


def load_kernels() -> None:
    """Waits for the kernels; a test without them would show nothing."""
    if os.environ.get(loading.SETTING) == loading.OFF:
        pytest.skip("kernels are switched off")
    for name in KERNELS:
        if loading.load(name) is None:
            pytest.skip(f"{name} is not compiled: {built.HOW_TO_BUILD}")


def request_of(*messages: NewMessage, **fields: Any) -> bytes:
    """A request's bytes."""
    return pb.AppendMessagesRequest(messages=messages, **fields).SerializeToString()


class Twins:
    """The two logs, with the same clock and the same unique keys.

    Attributes:
        fast, plain: the logs.
        fast_count: requests that the fast one took.
    """

    def __init__(self, root: Path, **settings: Any) -> None:
        settings = {"file_size_bytes": 1 << 20, "flush_interval_millis": 1000} | settings
        self.now_millis = TIME_MILLIS
        self.fast, self.plain = (self._open(root / name, settings) for name in ("fast", "plain"))
        self._servicers = [
            CommitLogServicer(log, "broker-ä", log._settings.store_host) for log in (self.fast, self.plain)
        ]
        self.fast_count = 0
        take = self.fast.opened.appends.write_request

        def count(data: bytes, **names: Any) -> Any:
            answer = take(data, **names)
            self.fast_count += answer is not None
            return answer

        self.fast.opened.appends.write_request = count  # type: ignore[method-assign]  # counts, and goes on
        # The fast way takes no request, so that each goes the plain way.
        self.plain.opened.appends.write_request = lambda data, **names: None  # type: ignore[method-assign]

    def append(self, data: bytes, born_host: Any = BORN_HOST) -> Any:
        """The outcome of a request, the same for both: an answer, or an error."""
        fast, plain = (self._outcome(servicer, data, born_host) for servicer in self._servicers)
        assert plain == fast
        assert self.plain.status.end_offset == self.fast.status.end_offset
        if isinstance(plain, bytes):
            return pb.AppendMessagesResponse.FromString(plain)
        return plain

    def is_taken(self, data: bytes) -> bool:
        """Appends, and says whether the fast way took it."""
        count = self.fast_count
        self.append(data)
        return self.fast_count > count

    def compare_logs(self) -> None:
        """Both have the same bytes and go on at the same places."""
        fast, plain = (
            log._files.read(log.status.first_offset, log.status.end_offset) for log in (self.fast, self.plain)
        )
        assert plain == fast
        assert self.plain.opened.appender.snapshot() == self.fast.opened.appender.snapshot()

    def _open(self, root: Path, settings: dict[str, Any]) -> CommitLog:
        log = CommitLog(root, CommitLogSettings(store=root, **settings), clock_millis=lambda: self.now_millis)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "urandom", bytes)  # what the unique keys' maker is made with
            log.recover()
        return log

    @staticmethod
    def _outcome(servicer: CommitLogServicer, data: bytes, born_host: Any) -> Any:
        try:
            return servicer.append_bytes(data, born_host)
        except StoreError as error:
            return type(error), error.message, error.metadata


@contextmanager
def open_twins(root: Path, **settings: Any) -> Iterator[Twins]:
    """Twins, compared and closed at the end."""
    load_kernels()
    twins = Twins(root, **settings)
    try:
        yield twins
        twins.compare_logs()
    finally:
        twins.fast.close()
        twins.plain.close()
