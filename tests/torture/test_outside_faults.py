"""Faults from outside the process, by strace: what the fork-based tests assume holds for the real system calls.

- Each call that the store's files make is one that the fault injector counts: nothing writes past it.
- A life killed by strace at a call leaves a store as whole as one killed by the injector.
- The real commitlog service under a refused flush: no acknowledgement, FLUSH_FAILED, NOT_SERVING, exit code 3.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from services import status
from store.errors import FlushFailedError, ServiceUnavailableError
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.torture.amount import amount
from tests.torture.drivers import CHECK_LAYOUT, SCENARIOS, message_id
from tests.torture.lives import ROOT, Lives, Told
from tests.torture.seeds import pick_seed
from tests.torture.store_check import Place, check_store, read_frames
from tests.torture.stores import TIME_LIMIT, History, choose, judge
from tests.torture.tools.strace import TracedCall, read_trace, strace_prefix, why_no_strace

REASON = why_no_strace()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), TIME_LIMIT]
FENCED = 3
SEGMENT = f"{0:020d}"
OUR_NAMES = {"pwrite64": "pwrite", "pwritev2": "pwritev"}


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as running:
        yield running


def run_driver(scenario: str, store: Path, *prefix: str) -> Told:
    """A life of `drivers.py` as a process of its own, behind a tool."""
    environ = dict(os.environ) | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
    done = subprocess.run(
        [*prefix, sys.executable, "-B", "-m", "tests.torture.drivers", scenario, str(store)],
        env=environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    return Told([line.split(" ") for line in done.stdout.decode().splitlines()], done.returncode, 0.0, False)


def changes(trace: list[TracedCall], store: Path) -> list[tuple[str, str]]:
    """The calls that change the disk below the store: name and relative path, as the injector writes them."""
    rows = []
    for call in trace:
        paths = re.findall(rf"[<\"]({re.escape(str(store))}[^>\"]*)[>\"]", call.arguments)
        if not paths or call.result.startswith("-1"):
            continue
        name = OUR_NAMES.get(call.name, call.name)
        if name == "openat":
            if "O_CREAT" not in call.arguments and "O_TRUNC" not in call.arguments:
                continue
            name = "open"
        if name == "mmap" and ("PROT_WRITE" not in call.arguments or "MAP_PRIVATE" in call.arguments):
            continue
        rows.append((name, os.path.relpath(paths[-1], store)))
    return rows


@pytest.mark.parametrize("scenario", ["append", "rollover"])
def test_every_call_that_changes_a_store_goes_through_the_injector(scenario: str, lives: Lives, tmp_path: Path) -> None:
    store = tmp_path / "store"
    told = run_driver(scenario, store, *strace_prefix(tmp_path / "trace"))
    assert told.rows("done"), told.lines
    seen_outside = changes(read_trace(tmp_path / "trace"), store)

    twin = lives.live(tmp_path / "twin", SCENARIOS[scenario], trace=True)

    counted = [(call[0], call[1]) for call in twin.calls]
    # Opening an existing file to make it if it is not there changes nothing; the injector knows, strace does not.
    made: set[str] = set()
    kept = []
    for name, path in seen_outside:
        if name == "open" and path in made and not path.endswith((".tmp", "abort")):
            continue
        made.add(path)
        kept.append((name, path))
    # The parent's own flush lies outside of the root.
    assert kept == [(name, path) for name, path in counted if path != ".."]


def test_a_life_killed_by_strace_at_a_call_leaves_a_whole_store(lives: Lives, tmp_path: Path) -> None:
    seed = pick_seed("strace-kill")
    kinds = ("fdatasync", "pwritev2", "pwrite64", "rename", "fallocate", "mkdir", "ftruncate", "fsync", "unlink")
    plans = [(kind, when) for kind in kinds for when in (1, 2, 5, 9, 14, 19)]
    for index in choose(len(plans), amount(sample=2, change=8, full=len(plans)), seed):
        kind, when = plans[index - 1]
        store = tmp_path / f"{kind}-{when}"
        inject = f"{kind}:signal=KILL:when={when}"  # the driver's interpreter makes none of these elsewhere
        prefix = strace_prefix(tmp_path / "trace", calls=(kind,), inject=inject)
        told = run_driver("rollover", store, *prefix)
        history = History()
        history.add(SCENARIOS["rollover"], told)
        about = f"killed at {kind} number {when} of a thread (seed {seed}), {len(told.acked)} acknowledged"
        judge(lives, store, history, about)


def test_interrupted_calls_are_made_again_and_nobody_notices(lives: Lives, tmp_path: Path) -> None:
    for kind in ("pwritev2", "fdatasync", "pwrite64", "ftruncate", "fallocate")[: amount(sample=2, change=5, full=5)]:
        store = tmp_path / kind
        prefix = strace_prefix(tmp_path / "trace", calls=(kind,), inject=f"{kind}:error=EINTR:when=2+3")
        told = run_driver("rollover", store, *prefix)
        assert len(told.acked) == SCENARIOS["rollover"].count, f"EINTR from {kind}: {told.lines}"
        assert any(call.was_injected for call in read_trace(tmp_path / "trace"))
        problems = check_store(store, acked=told.acked, attempted=set(told.acked), layout=CHECK_LAYOUT)
        assert not problems, problems


class Writers:
    """Threads that append to a commitlog service, one message at a time, each waiting for the disk."""

    def __init__(self, service: Service, thread_count: int, message_count: int) -> None:
        self.acked: dict[str, Place] = {}
        self.errors: dict[str, grpc.RpcError] = {}
        self._stub = service.stub
        self._lock = threading.Lock()
        self._numbers = iter(range(message_count))
        self._threads = [threading.Thread(target=self._write, daemon=True) for _ in range(thread_count)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive(), "an append hangs"

    def _write(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            name = message_id(number)
            message = message_pb2.NewMessage(
                topic="orders", body=name.encode() + b"|" + bytes(40), queue_id=number % 4, unique_key=f"U{number}"
            )
            request = pb.AppendMessagesRequest(messages=[message], flush=message_pb2.FLUSH_MODE_SYNC)
            try:
                (result,) = self._stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results
            except grpc.RpcError as error:
                with self._lock:
                    self.errors[name] = error
                return  # one refusal is enough
            with self._lock:
                self.acked[name] = Place(result.commit_log_offset, result.queue_id, result.queue_offset)


class HealthWatch:
    """The health states of a service, as they come."""

    def __init__(self, service: Service) -> None:
        self.states: list[int] = []
        stub = health_pb2_grpc.HealthStub(service.channel)
        self._stream = stub.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        try:
            for answer in self._stream:
                self.states.append(answer.status)
        except grpc.RpcError:
            pass  # the service has ended


def written_end(call: TracedCall) -> int:
    """Where a pwritev2 ended: its arguments end with position and flags, its result is the size."""
    return int(call.arguments.split(", ")[-2]) + int(call.result or 0)


def test_rmq_2706_3129_5235_a_refused_flush_is_never_acknowledged(lives: Lives, tmp_path: Path) -> None:
    seed = pick_seed("refused-flush")
    for number in choose(25, amount(sample=1, change=4, full=25), seed):
        store, log = tmp_path / f"store-{number}", tmp_path / f"trace-{number}"
        segment = store / "commitlog" / SEGMENT
        # The flush thread alone flushes this path: its n-th call is the n-th group commit.
        inject = f"fdatasync:error=EIO:when={number}"
        prefix = strace_prefix(log, calls=("fdatasync", "pwritev2"), inject=inject, paths=(segment,))
        settings = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536"}
        with Service("commitlog", store, settings, prefix) as service:
            health = HealthWatch(service)
            writers = Writers(service, thread_count=3, message_count=200)
            writers.join()
            exit_code = service.process.wait(WAIT_SECONDS_MAX)
            health.join()
            printed = service.log()
        about = f"flush {number} refused (seed {seed}): {len(writers.acked)} acked, {printed[-2000:]}"

        assert writers.errors, f"{about}: nobody was told"
        told = {name: status.from_rpc_error(error) for name, error in writers.errors.items()}
        assert any(isinstance(error, FlushFailedError) for error in told.values()), f"{about}: {told}"
        # A call that comes when the server ends already may be sent away before it wrote anything.
        written = {frame.message_id for frame in read_frames(store, [])}
        for name, error in told.items():
            kinds = (FlushFailedError,) if name in written else (FlushFailedError, ServiceUnavailableError)
            assert isinstance(error, kinds), f"{about}: {name}, written: {name in written}, was told {error!r}"
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        assert health.states[0] == serving, about
        assert health.states[-1] == not_serving, f"{about}: health said {health.states}"
        assert exit_code == FENCED, f"{about}: exit code {exit_code}"
        assert "log.fenced" in printed, about
        calls = read_trace(log)
        flushes = [n for n, call in enumerate(calls) if call.name == "fdatasync"]
        refused = next(n for n in flushes if calls[n].was_injected)
        assert flushes[-1] == refused, f"{about}: flushed again after the refusal: {calls[refused:]}"
        good = [n for n in flushes if n != refused]
        on_disk = (
            max((written_end(call) for call in calls[: good[-1]] if call.name == "pwritev2"), default=0) if good else 0
        )
        beyond = {name: place for name, place in writers.acked.items() if place.commit_log_offset >= on_disk}
        assert not beyond, f"{about}: acknowledged beyond {on_disk}, the end of the last good flush: {beyond}"

        with Service("commitlog", store, settings) as again:
            end_offset = again.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset
            for name, place in writers.acked.items():
                request = pb.GetMessageRequest(commit_log_offset=place.commit_log_offset)
                message = again.stub.GetMessage(request, timeout=WAIT_SECONDS_MAX).message
                assert message.body.split(b"|")[0].decode() == name, about
            assert again.stop() == 0
        attempted = set(writers.acked) | set(writers.errors)
        problems = check_store(store, acked=writers.acked, attempted=attempted, queues=False)
        assert not problems, f"{about}: {problems}"
        frames = read_frames(store, [])
        assert end_offset == (frames[-1].commit_log_offset + frames[-1].size_bytes if frames else 0)
        # What nobody acknowledged may only stand behind all that was: the acked are a prefix.
        unacked = [frame.message_id not in writers.acked for frame in frames]
        assert unacked == sorted(unacked), about


@pytest.mark.parametrize("error_name", ["EIO", "ENOSPC"])
def test_a_refused_write_is_refused_to_its_sender_alone_or_fences(error_name: str, tmp_path: Path) -> None:
    """ENOSPC on a write: RESOURCE_EXHAUSTED and life goes on. EIO: the store fences. Neither is acknowledged."""
    seed = pick_seed(f"refused-write-{error_name}")
    for number in choose(15, amount(sample=1, change=3, full=15), seed):
        store, log = tmp_path / f"store-{number}", tmp_path / f"trace-{number}"
        inject = f"pwritev2:error={error_name}:when={number}"
        segment = store / "commitlog" / SEGMENT
        prefix = strace_prefix(log, calls=("pwritev2",), inject=inject, paths=(segment,))
        settings = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536", "REPUT_WORKER_COUNT": "4"}
        acked: dict[str, Place] = {}
        attempted: set[str] = set()
        codes: list[grpc.StatusCode] = []
        with Service("commitlog", store, settings, prefix) as service:
            rounds = 0
            while not codes and rounds < 50:  # each RPC thread counts for itself: somebody's n-th write comes
                rounds += 1
                name = message_id(rounds)
                attempted.add(name)
                message = message_pb2.NewMessage(topic="orders", body=name.encode() + b"|", unique_key=name)
                request = pb.AppendMessagesRequest(messages=[message], flush=message_pb2.FLUSH_MODE_SYNC)
                try:
                    (result,) = service.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results
                    acked[name] = Place(result.commit_log_offset, result.queue_id, result.queue_offset)
                except grpc.RpcError as error:
                    codes.append(error.code())
            about = f"{error_name} at a thread's write {number} (seed {seed}): {codes}, {service.log()[-1500:]}"
            if error_name == "ENOSPC":
                assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED], about
                assert service.health() == "serving", about
                assert service.stop() == 0, about
            else:
                assert codes == [grpc.StatusCode.UNAVAILABLE], about
                assert service.process.wait(WAIT_SECONDS_MAX) == FENCED, about
        problems = check_store(store, acked=acked, attempted=attempted, queues=False)
        if error_name == "ENOSPC":
            assert name not in {frame.message_id for frame in read_frames(store, [])}, about
        assert not problems, f"{about}: {problems}"
