"""Targets: each kernel that reads bytes, compiled and as plain Python, against the plain code that decides the same.

The plain form is an ordinary import, so that its branches guide the choice of inputs; the compiled form has no coverage.
"""

import atexit
import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import commitlog_svc.append.batch_kernel as append_kernel
import commitlog_svc.append.recent_keys_kernel as recent_keys_kernel
import services.local.messages_kernel as messages_kernel
import services.rocketmq.batch_kernel as client_batch_kernel
import store.derive.dispatch_kernel as dispatch_kernel
import store.walk.log_walk_kernel as log_walk_kernel
import store.walk.scan_kernel as scan_kernel
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage, StoredMessage
from services.convert import stored_message
from store.compiled import built, loading
from store.derive import dispatch_walk
from store.errors import InvalidMessageError
from store.format.client_batch import BatchEntry, decode_client_batch, encode_client_batch
from store.format.record import decode_record
from store.walk import scan_layout
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import Twins, request_of
from tests.store.derive.test_dispatch_walk import assert_equal
from tests.store.walk.logs import ODD, frames_of, message, open_files
from tests.store.walk.test_record_runs import Walk
from tests.store.walk.test_scan import assert_marks_agree, assert_twins_agree
from tests.torture.fuzz.fixture_seeds import FRAME_TOKENS, frames
from tests.torture.fuzz.target import Target, scratch

HEAD = NewMessage(topic="T", queue_id=3, flag=7).SerializeToString()
TAIL = StoredMessage(broker_name="broker").SerializeToString()
# Twins are opened anew, so that their files stay small.
TWINS_INPUTS_MAX = 2_000


def _forms(plain: ModuleType) -> Iterator[ModuleType]:
    """The kernel compiled, where it is, and plain."""
    compiled = _compiled(plain.__name__)
    if compiled is not None:
        yield compiled
    yield plain


@functools.cache
def _compiled(name: str) -> ModuleType | None:
    return built.load(name)


@contextmanager
def _serving(*kernels: ModuleType) -> Iterator[None]:
    """These forms are what `loading.load` gives."""
    before = dict(loading._kernels)
    loading._kernels |= {kernel.__name__: kernel for kernel in kernels}
    try:
        yield
    finally:
        loading._kernels.clear()
        loading._kernels.update(before)


def _dispatch(data: bytes) -> None:
    plain = dispatch_walk.walk_columns_plainly(data, 0, 0, 64)
    before, dispatch_walk.KERNEL_BYTES_MIN = dispatch_walk.KERNEL_BYTES_MIN, 0
    try:
        for form in _forms(dispatch_kernel):
            with _serving(form):
                assert_equal(dispatch_walk.walk_columns(data, 0, 0, 64), plain)
    finally:
        dispatch_walk.KERNEL_BYTES_MIN = before


def _scan(data: bytes) -> None:
    for form in _forms(scan_kernel):
        for check in (scan_layout.LENGTHS, scan_layout.PLACE, scan_layout.SUMS):
            assert_twins_agree(form, data, check=check, base=0)
        assert_marks_agree(form, data, 100, 8)


def _log_walk(data: bytes) -> None:
    files = open_files(data or b"\0")  # a file of a log is never empty
    outcomes = [Walk(files, loading.OFF).outcome]
    for form in _forms(log_walk_kernel):
        with _serving(form):
            outcomes.append(Walk(files, loading.EAGER).outcome)
    files.close()
    assert outcomes.count(outcomes[0]) == len(outcomes)


@functools.cache
def _file() -> int:
    return os.open(scratch() / "log", os.O_RDWR | os.O_CREAT)


def _messages(data: bytes) -> None:
    """A single message out of a log file."""
    fd = _file()
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)
    results = []
    for form in _forms(messages_kernel):
        target = memoryview(bytearray(1 << 17))
        spans = memoryview(bytearray(8 * form.SPAN_COUNT)).cast("q")
        size = form.encode_one(form.Buffers(bytearray(1 << 16), spans, target), fd, 0, len(data), 0, TAIL)
        results.append(bytes(target[:size]))
    assert results.count(results[0]) == len(results)
    if not results[0]:
        return
    record = decode_record(data, commit_log_offset=0)  # what the kernel takes is a good record
    shown = stored_message(record, "broker")
    shown.ClearField("source")
    assert StoredMessage.FromString(results[0]) == shown


def _client_batch(data: bytes) -> None:
    """What a kernel takes of a batch are its first messages, as the plain code reads them."""
    ends = []
    for form in _forms(client_batch_kernel):
        room = bytearray(form.room_bytes(len(data), len(HEAD), 64))
        at, count, size = form.encode(data, 0, 64, 7, HEAD, room)
        ends.append((at, count, bytes(room[:size])))
    assert ends.count(ends[0]) == len(ends)
    at, count, made = ends[0]
    messages = pb.AppendMessagesRequest.FromString(made).messages
    entries = decode_client_batch(data[:at])
    assert [(7, each.body, each.wire_properties) for each in messages] == entries
    assert len(entries) == count
    try:
        whole = decode_client_batch(data)
    except InvalidMessageError:
        return
    if all(entry.flag == 7 for entry in whole[:64]):
        assert count == min(len(whole), 64)


class _TwinsOfForms:
    """Twins for each form of the kernels of an append, opened anew after so many inputs."""

    def __init__(self) -> None:
        self._twins: list[tuple[Twins, tuple[ModuleType, ...]]] = []
        self._count = 0
        atexit.register(self._close)  # before the directory goes

    def append(self, data: bytes) -> None:
        """The same for both forms and for the plain way."""
        if self._count % TWINS_INPUTS_MAX == 0:
            self._open()
        self._count += 1
        for twins, kernels in self._twins:
            with _serving(*kernels):
                twins.append(data)

    def _open(self) -> None:
        for twins, _ in self._twins:
            twins.compare_logs()
        self._close()
        plain = (append_kernel, recent_keys_kernel)
        compiled = tuple(form for kernel in plain if (form := _compiled(kernel.__name__)) is not None)
        for name, kernels in (("compiled", compiled), ("source", plain)):
            root = scratch() / name
            shutil.rmtree(root, ignore_errors=True)
            with _serving(*kernels):
                twins = Twins(root)
                twins.append(request_of(new_message()))
            self._twins.append((twins, kernels))

    def _close(self) -> None:
        for twins, _ in self._twins:
            twins.fast.close()
            twins.plain.close()
        self._twins.clear()


@functools.cache
def _twins() -> _TwinsOfForms:
    return _TwinsOfForms()


def _append(data: bytes) -> None:
    _twins().append(data)


def _append_seeds() -> list[bytes]:
    wire = b"UNIQ_KEY\x01wire\x02TAGS\x01T\x02__SHARDINGKEY\x01k\x02"
    messages = [
        new_message(),
        new_message(keys=["a", "b"], tags="T", properties={"p": "q"}, unique_key="u", queue_id=3, flag=-9),
        new_message(wire_properties=wire, sys_flag=0x303, born_host="1.2.3.4:5", reconsume_times=2),
        new_message(born_host="[2001:db8::8:800:200c:417a]:10911"),
    ]
    return [request_of(each) for each in messages] + [
        request_of(*messages, flush=1),
        request_of(*messages, deduplicate=True),
    ]


def _logs() -> list[bytes]:
    odd = [b"".join(frames_of([message("payments"), each, message()], base=0)) for each in ODD]
    return [*odd, *frames()[:20]]


TARGETS: dict[str, Target] = {
    "dispatch_kernel": Target(_dispatch, _logs, FRAME_TOKENS),
    "scan_kernel": Target(_scan, _logs, FRAME_TOKENS),
    "log_walk_kernel": Target(_log_walk, _logs, FRAME_TOKENS),
    "messages_kernel": Target(_messages, lambda: [*frames(), *frames_of(ODD, base=0)], FRAME_TOKENS),
    "client_batch_kernel": Target(
        _client_batch,
        lambda: [encode_client_batch([BatchEntry(7, b"b" * at, b"a\x01b\x02") for at in range(4)]),
                 encode_client_batch([BatchEntry(7, b"", b""), BatchEntry(8, b"", b"")])],
        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"),
    ),
    "append_kernel": Target(_append, _append_seeds, (b"\xff" * 9 + b"\x01", b"\x0a\x00", b"UNIQ_KEY\x01", b"__CRC32#\x01")),
}  # fmt: skip
