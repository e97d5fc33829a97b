"""Slow and silent callers over real sockets: what they may cost, and that nobody else pays (row 12 of docs/durability.md)."""

import contextlib
import os
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from services.serving.admission.lane import EVICT_SECONDS
from services.serving.admission.shares import ADDRESS_FACTOR
from services.serving.lanes import DOWNLOAD_COUNT_MAX, TAIL_COUNT_MAX
from services.serving.stall_watch import ANSWER_SECONDS_MAX
from tests.support.service import Service
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount

GROWTH_BYTES_MAX = 64 << 20
# What all places of the lane hold (services/serving/lanes.py): three copies of a body of 4 MiB each. Callers that are awake are
# measured before, and on a busy machine they may have held next to nothing.
DOWNLOADS_BYTES_MAX = DOWNLOAD_COUNT_MAX * 3 * (4 << 20)
# Readers of one address: three quarters of the places.
PLACE_COUNT = TAIL_COUNT_MAX * ADDRESS_FACTOR // (ADDRESS_FACTOR + 1)
# The promise is 1 s on a quiet machine. A caller that is held up by silent ones waits until they are ended.
LAG_SECONDS_MAX = 0.9 * ANSWER_SECONDS_MAX
# Of one download: each takes a second of a gateway that has no time.
REFUSALS_MAX = 60
SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(16 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "20000",
}
# One connection a reader, as they would be on many machines; answers pile up only where gRPC lets them.
# Without the probe a window stays at HTTP/2's 64 KiB instead of growing to many MiB, in which a silent caller would look
# like one who reads.
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0))


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def wide_messages(count: int, key_bytes: int = 2048) -> list[message_pb2.NewMessage]:
    """Messages whose dispatch requests are large: most of what Reput shows of a record is its keys."""
    return [
        message_pb2.NewMessage(topic="wide", body=b"b" * 16, keys=[f"{number:06}".ljust(key_bytes, "k")])
        for number in range(count)
    ]


def fill(stub: pb_grpc.CommitLogServiceStub, size_bytes: int) -> None:
    """Append about so many bytes."""
    request = pb.AppendMessagesRequest(messages=wide_messages(500))
    for _ in range(max(1, size_bytes // (500 * 2200))):
        stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX)


class Memory:
    """Samples a process's memory in a thread, for its peak."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self.begin = [rss_bytes(pid) for pid in pids]
        self.peak = list(self.begin)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = [max(peak, rss_bytes(pid)) for peak, pid in zip(self.peak, self._pids, strict=True)]

    def growth_bytes(self) -> list[int]:
        """Most that each process grew by."""
        self._stop.set()
        self._thread.join()
        return [peak - begin for peak, begin in zip(self.peak, self.begin, strict=True)]


@contextlib.contextmanager
def silent_readers(address: str, count: int, *, columns: bool = False) -> Iterator[list[grpc.Call]]:
    """Readers of the whole log that take one batch and then nothing more; those that were refused are left out."""
    channels = [grpc.insecure_channel(address, options=OWN_CONNECTION) for _ in range(count)]
    calls = []
    try:
        for channel in channels:
            call = pb_grpc.CommitLogServiceStub(channel).Reput(pb.ReputRequest(start_offset=-1, columns=columns))
            try:
                next(call)
                calls.append(call)
            except grpc.RpcError as refused:
                if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
        yield calls
    finally:
        for channel in channels:
            channel.close()


class LiveReader:
    """A reader that keeps up; notes the worst time between an append's answer and its arrival here."""

    def __init__(self, stub: pb_grpc.CommitLogServiceStub, start_offset: int) -> None:
        self.next_offset = start_offset
        self._changed = threading.Condition()
        self._call = stub.Reput(pb.ReputRequest(start_offset=start_offset))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for batch in self._call:
                with self._changed:
                    self.next_offset = batch.next_offset
                    self._changed.notify_all()

    def seconds_until(self, offset: int) -> float:
        """How long it takes until everything before an offset has arrived."""
        began = time.monotonic()
        with self._changed:
            assert self._changed.wait_for(lambda: self.next_offset >= offset, WAIT_SECONDS_MAX), "the reader starves"
        return time.monotonic() - began

    def close(self) -> None:
        self._call.cancel()
        self._thread.join()


@pytest.mark.parametrize("columns", [False, True], ids=["requests", "columns"])
def test_silent_reput_readers_cost_little_memory_and_hold_nobody_up(tmp_path: pathlib.Path, columns: bool) -> None:
    reader_count = amount(sample=8, change=50, full=50)
    seconds = amount(sample=1, change=8, full=3600)
    with Service("commitlog", tmp_path / "store", SMALL_FILES) as service:
        fill(service.stub, 12 << 20)
        live = LiveReader(service.stub, service.stub.GetStatus(pb.GetStatusRequest()).log_flushed_offset)
        first = service.stub.Reput(pb.ReputRequest(start_offset=-1, columns=columns))
        next(first)
        first.cancel()
        memory = Memory(service.pid)
        worst_seconds = 0.0
        with silent_readers(service.address, reader_count, columns=columns) as calls:
            assert len(calls) >= min(reader_count, PLACE_COUNT - 1)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                fill(service.stub, 1)
                end_offset = service.stub.GetStatus(pb.GetStatusRequest()).log_end_offset
                worst_seconds = max(worst_seconds, live.seconds_until(end_offset))
            [growth_bytes] = memory.growth_bytes()
        live.close()
    print(f"{reader_count} silent readers, {seconds} s: +{growth_bytes >> 20} MiB, worst lag {worst_seconds:.2f} s")

    assert growth_bytes <= GROWTH_BYTES_MAX
    assert worst_seconds < LAG_SECONDS_MAX


def test_a_newcomer_gets_in_although_all_places_are_taken_by_sleepers(tmp_path: pathlib.Path) -> None:
    """A builder that was restarted must not stand behind readers that sleep: it waits 5 s, not for ever."""
    with Service("commitlog", tmp_path / "store", SMALL_FILES) as service:
        fill(service.stub, 4 << 20)
        with silent_readers(service.address, TAIL_COUNT_MAX) as calls:
            assert len(calls) == PLACE_COUNT

            def get_in() -> bool:
                try:
                    batch = next(service.stub.Reput(pb.ReputRequest(start_offset=-1), timeout=WAIT_SECONDS_MAX))
                except grpc.RpcError as refused:
                    if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    return False
                return len(batch.requests) > 0

            waited_seconds = wait_until(get_in, "a place", poll_seconds=0.2)
            assert service.log().count("rpc.stalled") == 1
    print(f"in after {waited_seconds:.1f} s")


def test_a_reader_that_takes_nothing_is_ended_by_its_deadline(tmp_path: pathlib.Path) -> None:
    if amount(sample=0, change=1, full=1) == 0:
        pytest.skip(
            f"takes {ANSWER_SECONDS_MAX:.0f} s: TORTURE_LEVEL=change; tests/services/serving/test_lanes.py has it short"
        )
    with Service("commitlog", tmp_path / "store", SMALL_FILES) as service:
        fill(service.stub, 4 << 20)
        with silent_readers(service.address, 4) as calls:
            waited_seconds = wait_until(
                lambda: service.log().count("rpc.stalled") >= len(calls),
                "all silent readers are ended",
            )
            assert waited_seconds > EVICT_SECONDS
            for call in calls:
                with pytest.raises(grpc.RpcError) as caught:
                    list(call)
                assert caught.value.code() is grpc.StatusCode.CANCELLED


def deleted_files(pid: int) -> list[str]:
    """Files that a process keeps open although they are deleted: their space does not come back."""
    links = []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(descriptor))
    return [link for link in links if link.endswith("(deleted)")]


def test_silent_readers_keep_no_deleted_log_file_open(tmp_path: pathlib.Path) -> None:
    """What retention removes under a reader that sleeps is gone from the disk, and the reader is told when it wakes."""
    expire = {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
        "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": "1",
        "REPUT_COMMITLOG_DELETE_WHEN_HOURS": ";".join(f"{hour:02}" for hour in range(24)),
    }
    with Service("commitlog", tmp_path / "store", expire) as service:
        fill(service.stub, 6 << 20)
        with silent_readers(service.address, 4) as calls:
            for builder in ("consumequeue", "index"):  # as a builder that is switched off
                service.stub.ReportProgress(pb.ReportProgressRequest(builder=builder, next_offset=-1))
            status = lambda: service.stub.GetStatus(pb.GetStatusRequest())  # noqa: E731 - asked twice below
            wait_until(lambda: status().log_first_offset >= 4 << 20, status)
            wait_until(lambda: not deleted_files(service.pid), lambda: deleted_files(service.pid))
            with pytest.raises(grpc.RpcError) as caught:
                for _ in calls[0]:
                    pass
            assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
            assert service.health() == "serving"


class Callers:
    """Many callers of one gateway, each with a connection of its own."""

    def __init__(self, address: str, count: int) -> None:
        self._channels = [grpc.insecure_channel(address, options=OWN_CONNECTION) for _ in range(count)]
        self.stubs = [gateway_grpc.GatewayServiceStub(channel) for channel in self._channels]
        self._calls: list[grpc.Call] = []

    def start(self, method: str, new_request: Callable[[], object]) -> list[grpc.Call]:
        """Each calls a method."""
        self._calls = [getattr(stub, method)(new_request()) for stub in self.stubs]
        return self._calls

    def close(self) -> None:
        """All go."""
        for call, channel in zip(self._calls, self._channels, strict=True):
            call.cancel()
            channel.close()


def read_all(calls: list[Any], take: Callable[[Any], object]) -> None:
    """Every caller takes its answers at the same time."""
    with futures.ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(take, calls))


def downloaded_bytes(stub: gateway_grpc.GatewayServiceStub, request: gateway_pb.DownloadBodyRequest) -> int:
    """The size of a body. A busy gateway that has not read a request after a second refuses it: it is sent again."""
    for _ in range(REFUSALS_MAX):
        try:
            return sum(len(part.chunk) for part in stub.DownloadBody(request))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
    raise AssertionError(f"refused {REFUSALS_MAX} times")


def answer_seconds(stack: Stack, seconds: float) -> float:
    """The longest that one more caller waits for an append and a status, in so many seconds."""
    one = gateway_pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="unread", body=b"b")])
    worst_seconds = 0.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        stack.gateway.AppendMessages(one, timeout=WAIT_SECONDS_MAX)
        stack.gateway.GetStatus(gateway_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
        worst_seconds = max(worst_seconds, time.monotonic() - began)
        time.sleep(0.05)  # the pace of a caller that is one of many
    return worst_seconds


def test_senders_that_read_no_answer_cost_little_and_hold_nobody_up(tmp_path: pathlib.Path) -> None:
    """Compared with the same senders when they do read."""
    sender_count = amount(sample=6, change=50, full=50)
    messages = [message_pb2.NewMessage(topic="unread", body=b"b" * 1000) for _ in range(250)]
    request = gateway_pb.AppendMessageStreamRequest(messages=messages)  # its answer is half of a caller's window
    stop = threading.Event()

    def for_ever() -> Iterator[gateway_pb.AppendMessageStreamRequest]:
        while not stop.is_set():
            yield request

    with running_stack(tmp_path / "store", settings=SMALL_FILES) as stack:
        pids = [stack.children()[module] for module in ("gateway", "commitlog_svc")]
        memory = Memory(*pids)
        callers = Callers(stack.addresses["gateway"], sender_count)
        requests_each = amount(sample=10, change=10, full=100)
        read_all(callers.start("AppendMessageStream", lambda: iter([request] * requests_each)), list)
        callers.close()
        awake_bytes = memory.growth_bytes()
        asleep = Memory(*pids)
        callers = Callers(stack.addresses["gateway"], sender_count)
        callers.start("AppendMessageStream", for_ever)
        worst_seconds = answer_seconds(stack, amount(sample=2, change=8, full=600))
        asleep.growth_bytes()
        stop.set()
        callers.close()
    more_bytes = sum(asleep.peak) - sum(memory.peak)
    print(
        f"{sender_count} senders: awake +{awake_bytes[0] >> 20} and +{awake_bytes[1] >> 20} MiB, "
        f"asleep {more_bytes >> 20:+} more; an append took {worst_seconds:.2f} s"
    )

    assert more_bytes <= GROWTH_BYTES_MAX
    assert worst_seconds < LAG_SECONDS_MAX


def test_downloads_that_nobody_takes_cost_little_and_hold_nobody_up(tmp_path: pathlib.Path) -> None:
    """Compared with the same downloads when somebody does."""
    download_count = amount(sample=8, change=50, full=50)
    body = os.urandom(4 << 20)
    with running_stack(tmp_path / "store", settings=SMALL_FILES) as stack:
        message = message_pb2.NewMessage(topic="large", body=body)
        sent = stack.gateway.AppendMessages(
            gateway_pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX
        )
        request = gateway_pb.DownloadBodyRequest(offset_msg_id=sent.results[0].offset_msg_id)
        pids = [stack.children()[module] for module in ("gateway", "commitlog_svc")]
        memory = Memory(*pids)
        callers = Callers(stack.addresses["gateway"], download_count)
        sizes = []
        read_all(callers.stubs, lambda stub: sizes.append(downloaded_bytes(stub, request)))
        assert sizes == [len(body)] * download_count
        awake_bytes = memory.growth_bytes()
        asleep = Memory(*pids)
        callers.start("DownloadBody", lambda: request)
        worst_seconds = answer_seconds(stack, amount(sample=1, change=5, full=60))
        asleep.growth_bytes()
        callers.close()
    more_bytes = sum(asleep.peak) - sum(memory.peak)
    print(
        f"{download_count} downloads: awake +{awake_bytes[0] >> 20} and +{awake_bytes[1] >> 20} MiB, "
        f"asleep {more_bytes >> 20:+} more; an append took {worst_seconds:.2f} s"
    )

    assert more_bytes <= DOWNLOADS_BYTES_MAX
    assert worst_seconds < LAG_SECONDS_MAX


SLOW_FSYNC_MILLIS = 500


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing (apt install strace)")
def test_rmq_8239_a_reader_is_never_shown_what_is_not_flushed_yet_however_slow_the_disk(tmp_path: pathlib.Path) -> None:
    """With fdatasync 500 ms late, sync appends are answered after it, and Reput shows nothing before: all survive."""
    count = amount(sample=4, change=20, full=400)
    slow = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e")
    slow += (f"inject=fdatasync:delay_enter={SLOW_FSYNC_MILLIS * 1000}",)
    shown: list[tuple[float, int]] = []
    acknowledged: list[tuple[str, int]] = []
    with Service("commitlog", tmp_path / "store", SMALL_FILES, slow) as service:

        def follow() -> None:
            with contextlib.suppress(grpc.RpcError):
                for batch in service.stub.Reput(pb.ReputRequest(start_offset=-1)):
                    for request in batch.requests:
                        assert request.commit_log_offset + request.record_size_bytes <= batch.log_end_offset
                        shown.append((time.monotonic(), request.commit_log_offset))

        follower = threading.Thread(target=follow)
        follower.start()
        written_at: dict[int, float] = {}
        for number in range(count):
            flush = message_pb2.FLUSH_MODE_SYNC if number % 2 else message_pb2.FLUSH_MODE_ASYNC
            message = message_pb2.NewMessage(topic="slow", body=b"%06d" % number)
            began = time.monotonic()
            answer = service.stub.AppendMessages(
                pb.AppendMessagesRequest(messages=[message], flush=flush), timeout=WAIT_SECONDS_MAX
            )
            offset = answer.results[0].commit_log_offset
            written_at[offset] = began
            if flush == message_pb2.FLUSH_MODE_SYNC:
                assert time.monotonic() - began >= SLOW_FSYNC_MILLIS / 1000, "answered before its flush"
                acknowledged.append((answer.results[0].offset_msg_id, offset))
        wait_until(lambda: len(shown) >= count, lambda: f"{len(shown)} of {count} are shown")
        service.kill()
        follower.join()
    for at, offset in shown:
        assert at - written_at[offset] >= SLOW_FSYNC_MILLIS / 1000, "shown before its flush"
    with Service("commitlog", tmp_path / "store", SMALL_FILES) as service:
        for _, offset in acknowledged:
            assert service.stub.GetMessage(pb.GetMessageRequest(commit_log_offset=offset)).message.topic == "slow"
        for _, offset in shown:
            service.stub.GetMessage(pb.GetMessageRequest(commit_log_offset=offset))
