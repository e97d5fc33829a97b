"""A stream's refusals are counted by code, also those of a disk that does not flush: the stream itself goes on."""

from pathlib import Path

import pytest

from commitlog_svc.servicer import UNKNOWN_HOST, CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.local.wire import LocalMethod
from services.observing.meters import APPEND_REFUSED
from store.errors import DiskFullError, FlushFailedError, StoreError, StoreRecoveringError
from tests.commitlog_svc.support import open_log


class _Call:
    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"


@pytest.mark.parametrize(
    ("error", "code"),
    [(FlushFailedError("x"), "UNAVAILABLE"), (StoreRecoveringError("x"), "UNAVAILABLE"),
     (DiskFullError("x"), "RESOURCE_EXHAUSTED"), (StoreError("x"), "INTERNAL")],
)  # fmt: skip
def test_a_refusal_on_a_stream_is_counted_by_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: StoreError, code: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    counter = APPEND_REFUSED.of("CommitLogService/AppendMessageStream", code)
    with open_log(tmp_path) as log:
        servicer = CommitLogServicer(log, "broker-a", str(UNKNOWN_HOST))
        monkeypatch.setattr(log.opened.appends, "write_request", refuse)
        before = counter.read()
        by_grpc = list(servicer.append_message_stream(iter([b""]), _Call()))  # type: ignore[arg-type]
        by_socket = servicer.local_appends()[LocalMethod.APPEND_ON_STREAM](b"")

    assert [pb.AppendMessageStreamResponse.FromString(answer).error.message for answer in [*by_grpc, by_socket]] == [
        "x",
        "x",
    ]
    assert counter.read() == before + 2
