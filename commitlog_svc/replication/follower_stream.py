"""FollowerStream: the leader's end of the stream of one follower."""

import threading
import zlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commitlog_svc.replication.copying.catch_up import FAR_BYTES_MIN, CatchUp
from commitlog_svc.replication.copying.fetch_frames import encode_fetched
from commitlog_svc.replication.copying.pace import Pace
from commitlog_svc.replication.leading.replica_progress import ReplicaProgress
from commitlog_svc.replication.limits import FETCH_COUNT_MAX
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import InvalidArgumentError, NotLeaderError, OffsetOutOfRangeError, ResourceBusyError, StoreError
from store.files.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from commitlog_svc.replication.leader_side import LeaderSide

CHUNK_BYTES = 1 << 20
FETCH_FILES_MIN = 2  # a follower that lacks so many whole files fetches them
FETCH_CHUNK_BYTES = 256 << 10  # larger messages are slower: each is memory that the kernel gives and takes back
CHUNK_BYTES_MIN = 16 << 10  # with a limit of bytes a second a chunk has a quarter of it, and so much at least
CHECK_BYTES = 64 << 10
HEARTBEAT_SECONDS = 0.25
# Pieces of the log that the follower has not reported: while it flushes one, the next one is on its way, and what is written
# meanwhile is gathered for the one after it. More would only be more messages for the same flushes.
UNREPORTED_COUNT_MAX = 2
GATHER_BYTES_MAX = 256 << 10  # so much is a large piece: one that is far behind never waits for its own reports
# The next piece carries the confirm offset. Where none comes, it is told alone, so long after the last message.
CONFIRM_SECONDS = 0.01
REPLICA_NAME_LENGTH_MAX = 63


class FollowerStream:
    """One stream; `responses` runs in one thread, `take_reports` in another, each fetch in one more.

    Args:
        leader: has the log.
        replica: the follower's name.
        progress: of the follower, used with the leader's lock held.
        agreed_offset: up to where the logs are equal, or -1.
        begin_offset: where the copy begins.
        can_fetch: whether the follower fetches whole files.
    """

    def __init__(
        self,
        leader: "LeaderSide",
        replica: str,
        progress: ReplicaProgress,
        agreed_offset: int,
        begin_offset: int,
        *,
        can_fetch: bool = False,
    ) -> None:
        self.replica = replica
        self.progress = progress
        self._leader = leader
        self._agreed_offset = agreed_offset
        self._begin_offset = begin_offset
        self._can_fetch = can_fetch
        self._fetch_end = 0  # the follower has been told to fetch the files before it
        self._fetch_count = 0
        rate = leader.limits.bytes_per_second_max
        self._pace = Pace(rate)
        self._chunk_bytes = min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, rate // 4)) if rate else CHUNK_BYTES
        self.catch_up: CatchUp | None = None  # while the follower lacks much of the log
        self._closed = threading.Event()
        self._failure: StoreError | None = None
        self._heard_report = 0
        self._unreported: deque[int] = deque()  # where pieces end that the follower has not reported (bytes)
        self.awaits_bytes = False  # with the leader's lock held: whether what is written now would be sent at once

    def close(self, failure: StoreError | None = None) -> None:
        """Ends the stream, with a failure or because the lead ends."""
        if not self._closed.is_set():
            self._failure = failure
            self._closed.set()
        with self._leader.lock:
            self._leader.news.notify_all()

    def take_reports(self, requests: Iterator[pb.ReplicateRequest]) -> None:
        """Takes reports until the follower goes."""
        failure: StoreError | None = None
        try:
            for request in requests:
                if request.WhichOneof("kind") != "report":
                    raise InvalidArgumentError("the first request is the hello, all others are reports", field="kind")
                self._leader.report(self, request.report)
                self._heard_report = request.report.number
        except StoreError as error:
            failure = error
        except Exception as error:  # gRPC's own, when the call ends
            failure = NotLeaderError(f"the stream of {self.replica} broke: {error}")
        finally:
            self.close(failure)

    def responses(self) -> Iterator[pb.ReplicateResponse]:
        """What the follower gets, without end; errors as LeaderSide.serve, OffsetOutOfRangeError when its bytes are gone."""
        yield self._start()
        leader, log = self._leader, self._leader.log
        sent = goal = self._begin_offset
        is_end = False
        config_version, confirmed, next_beat_at, confirm_at = 0, -1, 0.0, 0.0
        while True:
            with leader.lock:
                while not self._closed.is_set():
                    now = leader.clock()
                    written = log.commits.written_offset
                    # Pieces up to one goal follow each other: the follower reports nothing before it has all of them.
                    has_room = sent < goal or self._has_room() or written - sent >= GATHER_BYTES_MAX
                    has_bytes = written > sent and has_room and self.progress.durable_offset >= self._fetch_end
                    wake_at = next_beat_at
                    if log.confirm.confirm_offset > confirmed:
                        wake_at = min(wake_at, confirm_at)
                    if has_bytes:
                        wake_at = min(wake_at, self._pace.free_at)
                    if now >= wake_at or log.config.version > config_version:
                        break
                    self.awaits_bytes = has_room
                    leader.news.wait(wake_at - now)
                self.awaits_bytes = False
                if self._closed.is_set():
                    raise self._failure or NotLeaderError(f"{leader.name} ended the stream of {self.replica}")
                heartbeat = self.progress.beat(now, written)
                next_beat_at, confirm_at = now + HEARTBEAT_SECONDS, now + CONFIRM_SECONDS
            # In this order: what was confirmed before the report lies before an offset that is read while nobody else leads,
            # and what had changed in `config/` before it is sent.
            heard_report = self._heard_report
            # Files that changed before these bytes were written come before them.
            known_version = log.config.version
            for name, content, version in log.config.changed_since(config_version):
                for part in _parts(name, content, version):
                    yield pb.ReplicateResponse(config_files=[part], confirm_offset=confirmed, heartbeat=heartbeat)
                config_version = version
            config_version = max(config_version, known_version)  # a changed file that is gone is not sent
            heard_report = heard_report if leader.surely_leads() else 0
            confirmed = log.confirm.confirm_offset
            response = pb.ReplicateResponse(confirm_offset=confirmed, heartbeat=heartbeat, heard_report=heard_report)
            if has_bytes and (fetch_end := self._fetch_end_of(sent, confirmed)):
                response.fetch_end_offset = sent = goal = fetch_end
                with leader.lock:
                    self._fetch_end = fetch_end
                    self.progress.note_sent(fetch_end, 0)
            elif has_bytes and now >= self._pace.free_at:
                if sent >= goal:
                    goal, is_end = _goal(log.files, sent, written)
                size_bytes = min(self._chunk_bytes, goal - sent)
                settle_offset = goal if sent + size_bytes == goal else 0
                piece = response.log_bytes  # filled in place: a copy of a message of 1 MiB takes a millisecond
                piece.offset, piece.data, piece.settle_offset = sent, self._read(sent, size_bytes), settle_offset
                sent += size_bytes
                with leader.lock:
                    self.progress.note_sent(sent, settle_offset if is_end else 0)
                    if sent == goal:
                        self._unreported.append(sent)
                    self._pace.take(size_bytes, now)
                self._note_sent(size_bytes)
            yield response

    def fetch(self, begin_offset: int, end_offset: int) -> Iterator[bytes]:
        """The messages of one FetchLog; errors as `responses`.

        Raises:
            InvalidArgumentError: the follower has not been told to fetch these bytes.
            ResourceBusyError: it fetches too much at the same time.
        """
        leader, offset = self._leader, begin_offset
        with leader.lock:
            if not self._begin_offset <= begin_offset < end_offset <= self._fetch_end:
                raise InvalidArgumentError(
                    f"the log [{begin_offset}, {end_offset}) is not to be fetched: this stream begins at "
                    f"{self._begin_offset}, and names {self._fetch_end} as the end of what is fetched",
                    field="offset",
                )
            if self._fetch_count >= FETCH_COUNT_MAX:
                raise ResourceBusyError(
                    f"{self.replica} fetches {self._fetch_count} files already: wait for one", limit=FETCH_COUNT_MAX
                )
            self._fetch_count += 1
        try:
            while offset < end_offset:
                size_bytes = min(self._chunk_bytes, FETCH_CHUNK_BYTES, end_offset - offset)
                with leader.lock:
                    now = leader.clock()
                    send_at = self._pace.take(size_bytes, now)
                if self._closed.wait(send_at - now) if send_at > now else self._closed.is_set():
                    raise self._failure or NotLeaderError(f"{leader.name} ended the stream of {self.replica}")
                yield encode_fetched(self._read(offset, size_bytes))
                offset += size_bytes
                self._note_sent(size_bytes)
        finally:
            with leader.lock:
                self._fetch_count -= 1

    def _has_room(self) -> bool:
        """Whether a further piece may be under way; with the leader's lock held."""
        while self._unreported and self._unreported[0] <= self.progress.durable_offset:
            self._unreported.popleft()
        return len(self._unreported) < UNREPORTED_COUNT_MAX

    def _note_sent(self, size_bytes: int) -> None:
        catch_up = self.catch_up
        if catch_up is not None:
            catch_up.note(size_bytes)
            if self.progress.durable_offset >= catch_up.end_offset:
                self.catch_up = None

    def _fetch_end_of(self, sent_offset: int, confirmed_offset: int) -> int:
        """Where the whole files end that the follower is to fetch instead of more bytes here; 0: none.

        Only what is confirmed: no later leader has other bytes there, so what was fetched may be kept.
        """
        files = self._leader.log.files
        begin, size_bytes = files.first_offset, files.file_size_bytes
        end = confirmed_offset - (confirmed_offset - begin) % size_bytes
        is_far = end - sent_offset >= FETCH_FILES_MIN * size_bytes
        return end if self._can_fetch and is_far and (sent_offset - begin) % size_bytes == 0 else 0

    def _start(self) -> pb.ReplicateResponse:
        leader, files = self._leader, self._leader.log.files
        check_bytes = max(0, min(CHECK_BYTES, self._agreed_offset - files.first_offset))
        data = files.read(self._agreed_offset - check_bytes, check_bytes) if check_bytes else b""
        start = pb.ReplicateResponse.Start(
            epoch=leader.epoch,
            agreed_offset=self._agreed_offset,
            begin_offset=self._begin_offset,
            file_size_bytes=files.file_size_bytes,
            epochs=(pb.Epoch(epoch=epoch.epoch, begin_offset=epoch.begin_offset) for epoch in leader.log.epochs.epochs),
            check_crc=zlib.crc32(data),
            check_size_bytes=len(data),
            end_offset=leader.log.commits.written_offset,
        )
        if start.end_offset - start.begin_offset > FAR_BYTES_MIN:
            self.catch_up = CatchUp(start.begin_offset, start.end_offset)
        return pb.ReplicateResponse(start=start, confirm_offset=leader.log.confirm.confirm_offset)

    def _read(self, offset: int, size_bytes: int) -> bytes:
        files = self._leader.log.files
        data = files.read(offset, size_bytes)
        if len(data) < size_bytes:
            raise OffsetOutOfRangeError(
                f"retention of {self._leader.name} has removed the log before {files.first_offset}, and {self.replica} is at "
                f"{offset}: it begins anew",
                offset=offset,
                firstOffset=files.first_offset,
                lastOffset=self._leader.log.commits.written_offset,
            )
        return data


def _goal(files: MappedFileQueue, sent_offset: int, written_offset: int) -> tuple[int, bool]:
    """The next offset up to which the follower may show bytes, and whether a request ends there.

    One that is far behind shows file by file. No atomic request spans files; a request that is not atomic may lie in two, and
    the follower may show its first part before the second.
    """
    file = files.find(sent_offset)
    if file is None or written_offset - sent_offset <= 2 * files.file_size_bytes:
        return written_offset, True
    return file.last_offset, False


def _parts(name: str, content: bytes, version: int) -> Iterator[pb.ReplicateResponse.ConfigFile]:
    for begin in range(0, len(content), CHUNK_BYTES):
        part = content[begin : begin + CHUNK_BYTES]
        is_last = begin + CHUNK_BYTES >= len(content)
        yield pb.ReplicateResponse.ConfigFile(name=name, content=part, version=version, is_last=is_last)


def check_hello(request: pb.ReplicateRequest | None) -> pb.ReplicateRequest.Hello:
    """The hello of a stream; InvalidArgumentError when it is none."""
    if request is None or request.WhichOneof("kind") != "hello":
        raise InvalidArgumentError("the first request of a stream is the hello", field="hello")
    return request.hello


def check_shape(hello: pb.ReplicateRequest.Hello, leader: str, broker_name: str, files: MappedFileQueue) -> None:
    """InvalidArgumentError when the log of a hello cannot be a replica of this one."""
    if hello.broker_name != broker_name:
        raise InvalidArgumentError(
            f"this is the shard {broker_name!r}, and {hello.replica!r} is a replica of {hello.broker_name!r}: give it the "
            "broker_name and the coordinator of its own shard",
            field="broker_name",
            brokerName=broker_name,
        )
    if not 1 <= len(hello.replica) <= REPLICA_NAME_LENGTH_MAX or hello.replica == leader:
        raise InvalidArgumentError(
            f"{hello.replica[:80]!r} is not the name of another replica than this leader, {leader!r}: each replica needs a "
            "replica_name of its own",
            field="replica",
        )
    if hello.file_size_bytes and files.files and hello.file_size_bytes != files.file_size_bytes:
        raise InvalidArgumentError(
            f"the log of {hello.replica} has files of {hello.file_size_bytes} bytes, this one of {files.file_size_bytes}: "
            "remove the store of that replica, then it begins with this size",
            field="file_size_bytes",
            fileSizeBytes=files.file_size_bytes,
        )
    epochs = [(epoch.epoch, epoch.begin_offset) for epoch in hello.epochs]
    if epochs != sorted(set(epochs)) or not 0 <= hello.first_offset <= hello.end_offset:
        raise InvalidArgumentError(
            "the epochs of a hello rise, and so do the first and the end offset of its log", field="epochs"
        )
