"""A real log that is followed over gRPC and over its socket: what followers get, and what the service counts, is the same."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_svc.servicer import CommitLogServicer, add_to_server
from services.calling.commitlog import CommitLogClient, ReputBatch
from services.local.server import LocalServer, serve_local
from services.local.wire import TAILS
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import StoreError
from tests.commitlog_svc.support import append, make_log, new_message
from tests.support.waiting import wait_until


class Followed:
    """A log that is served, by one of the ways."""

    def __init__(self, root: Path, way: str) -> None:
        self.log = make_log(root / "store")
        self.log.recover()
        address = f"unix:{root}/s.sock"
        servicer = CommitLogServicer(self.log, "broker-a", "127.0.0.1:10911")
        self.server = ServiceServer("commitlog", ServiceSettings(address=address))
        self.server.add("reput.commitlog.v1.CommitLogService", add_to_server, servicer)
        self.door: LocalServer | None = None
        if way == "socket":
            self.door = serve_local(TAILS, address, servicer.local_tails(), self.server)
        self.server.start()
        self._ended = threading.Thread(target=self.server.serve_until_stopped)
        self._ended.start()
        self.client = CommitLogClient(address)

    @property
    def ended(self) -> dict[tuple[str, ...], int]:
        """How many calls have ended, by method and code."""
        (family,) = [family for family in self.server.meters.counters if family.name == "rpc_ended"]
        return {labels: counter.read() for labels, counter in family.items()}

    def stop(self) -> None:
        self.server.stop()
        self._ended.join()

    def close(self) -> None:
        self.client.close()
        self.stop()
        self.log.close()


@pytest.fixture(params=["socket", "grpc"])
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Followed]:
    made = Followed(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


def offsets_of(batches: Iterator[ReputBatch], count: int) -> list[int]:
    """Where so many records begin."""
    offsets: list[int] = []
    while len(offsets) < count:
        columns = next(batches).columns
        offsets += [] if columns is None else columns.commit_log_offsets.tolist()
    return offsets


def test_a_log_is_followed_from_its_begin_and_as_it_grows(followed: Followed) -> None:
    offsets = [receipt.commit_log_offset for receipt in append(followed.log, *[new_message()] * 100)]
    stream = followed.client.reput(-1)
    batches = iter(stream)
    assert offsets_of(batches, 100) == offsets
    assert followed.door is None or followed.door.connection_count == 1
    assert followed.server.lanes.tails.call_count == 1
    (receipt,) = append(followed.log, new_message())
    assert offsets_of(batches, 1) == [receipt.commit_log_offset]
    stream.cancel()
    with pytest.raises(StoreError):
        list(batches)
    wait_until(lambda: not followed.server.lanes.tails.call_count, "the tail to end")
    assert followed.ended == {("CommitLogService/Reput", "CANCELLED"): 1}


def test_a_place_that_the_log_does_not_have_is_refused_with_the_same_error(followed: Followed) -> None:
    append(followed.log, new_message())
    with pytest.raises(StoreError) as refused:
        next(iter(followed.client.reput(1 << 40)))
    error = refused.value
    assert (type(error).__name__, sorted(error.metadata)) == (
        "OffsetOutOfRangeError",
        ["firstOffset", "lastOffset", "offset"],
    )
    assert followed.ended == {("CommitLogService/Reput", "OUT_OF_RANGE"): 1}


def test_a_service_that_stops_ends_its_tails(followed: Followed) -> None:
    append(followed.log, new_message())
    batches = iter(followed.client.reput(-1))
    next(batches)
    followed.stop()
    with pytest.raises(StoreError) as ended:
        list(batches)
    assert type(ended.value).__name__ == "ServiceUnavailableError"
