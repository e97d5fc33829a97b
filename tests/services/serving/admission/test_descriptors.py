"""Descriptors: connections leave a reserve, and the log warns once."""

import errno

import grpc
import pytest
import structlog

from services.serving.admission import descriptors
from services.serving.admission.descriptors import (
    CONNECTION_COUNT_MAX,
    DESCRIPTOR_RESERVE,
    LOOK_SECONDS,
    DescriptorWatch,
    connection_count_max,
)
from store.files.open_files import open_file_limit
from tests.services.loopback import commit_log_server, get_request, stub
from tests.support.raw_http2 import RawClient
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.mark.parametrize(
    ("descriptor_count", "connection_count"),
    [(64, 32), (1_024, 512), (20_000, 20_000 - DESCRIPTOR_RESERVE), (1_000_000, CONNECTION_COUNT_MAX)],
)
def test_connections_leave_descriptors_for_files(descriptor_count: int, connection_count: int) -> None:
    assert connection_count_max(descriptor_count) == connection_count


def test_the_log_says_once_that_descriptors_become_few_and_again_after_a_recovery() -> None:
    now, count = [0.0], [100]
    watch = DescriptorWatch(lambda: now[0], lambda: count[0], lambda: 1_000)
    events = []
    with structlog.testing.capture_logs() as lines:
        for each in (449, 450, 451, 100, 460):
            count[0] = each
            now[0] += LOOK_SECONDS
            watch.look()
            watch.look()  # too soon
            events.append(len(lines))
    assert events == [0, 1, 1, 1, 2]
    assert lines[0]["event"] == "descriptors.short"
    assert lines[0]["connection_count_max"] == 500


def test_descriptors_that_cannot_be_counted_are_all_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(_path: str) -> list[str]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(descriptors.os, "listdir", listdir)
    assert descriptors.open_descriptor_count() == open_file_limit()


def test_connections_beyond_the_limit_are_closed_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.serving.server_options.connection_count_max", lambda _count: 8)
    with commit_log_server(get_message=descriptors_answer) as server, RawClient(server.address) as raw:
        own = stub(server)
        own.GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)
        connections = [raw.connect() for _ in range(20)]
        wait_until(lambda: sum(each.is_closed for each in connections) >= 12, "connections beyond the limit are closed")
        own.GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)


def descriptors_answer(_request: object, _context: grpc.ServicerContext) -> object:
    from reput.commitlog.v1 import commitlog_service_pb2 as pb

    assert descriptors.open_descriptor_count() > 8
    return pb.GetMessageResponse()
