"""Hostile requests against running services: each has its status, nothing changes on the disk, memory stays bounded, and the
services go on serving everybody else.

What single bad fields do is in tests/e2e/test_bad_input.py; here come random ones by the hundred, raw bytes on the wire,
and everything that is meant to hurt.
"""

import contextlib
import gzip
import hashlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from tests.commitlog_svc.test_rocketmq_security import hostile_names
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MEMORY_BYTES_MAX = 64 << 20  # that a whole round of hostility may add to one process
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}
# Bytes that are no message at all: the library, not a handler, answers.
UNREADABLE = REFUSALS | {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}

I32 = (-(1 << 31), -1, 0, 1, 64, 1000, 1001, (1 << 31) - 1)
I64 = (-(1 << 63), -1, 0, 1, 1 << 31, 1 << 40, (1 << 63) - 1)
TEXTS = (
    "",
    "T",
    "k",
    "../../x",
    "a/b",
    "a\0b",
    "..",
    "/etc/passwd",
    "x" * 255,
    "x" * 100_000,
    "é\u202e",
    "%",
    "-1",
    "NaN",
    "*",
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(16 << 20),
        "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
        "REPUT_INDEX_HASH_SLOT_COUNT": "500",
        "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
    }
    with running_stack(tmp_path_factory.mktemp("hostile") / "a" / "store", settings=settings) as running:
        request = pb.AppendMessagesRequest(messages=[new_message("T", b"hello", keys=["k"], queue_id=0)], flush=2)
        running.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        running.wait_until_built()
        yield running


def _serves(stack: Stack) -> None:
    """A new client gets the right answer in time."""
    with grpc.insecure_channel(stack.addresses["gateway"]) as channel:
        call = channel.unary_unary(
            "/reput.gateway.v1.GatewayService/QueryMessageByKey",
            request_serializer=pb.QueryMessageByKeyRequest.SerializeToString,
            response_deserializer=pb.QueryMessageByKeyResponse.FromString,
        )
        answer = call(pb.QueryMessageByKeyRequest(topic="T", key="k"), timeout=WAIT_SECONDS_MAX, wait_for_ready=True)
        assert [b"hello"] == [message.body for message in answer.messages]
    assert stack.process.poll() is None


def _trace(store: Path) -> dict[str, str]:
    """Files, and what is in them where nothing is written as time goes by."""
    found = {}
    for path in sorted(store.parent.parent.rglob("*")):
        name = str(path.relative_to(store.parent.parent))
        if "reput/" not in name and path.name not in ("checkpoint", "serve.log", "ports.json"):
            is_log = path.is_file() and "index" not in path.parts
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if is_log else ""
    return found


def _resident_bytes(stack: Stack) -> dict[int, int]:
    """Memory of each process of the stack."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    family = {stack.process.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    found = {}
    for pid in family:
        with contextlib.suppress(OSError):
            found[pid] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return found


@contextlib.contextmanager
def _unharmed(stack: Stack) -> Iterator[None]:
    """What is done inside changes no file, takes no more memory than MEMORY_BYTES_MAX, and stops nobody."""
    _serves(stack)
    trace, memory = _trace(stack.store), _resident_bytes(stack)
    yield
    _serves(stack)
    assert trace == _trace(stack.store)
    after = _resident_bytes(stack)
    assert memory.keys() == after.keys(), "a process was replaced"
    grown = {pid: after[pid] - memory[pid] for pid in memory}
    assert max(grown.values()) <= MEMORY_BYTES_MAX, grown


def _random_value(field: Any, random_: random.Random, depth: int) -> Any:
    kind = field.type
    if kind == field.TYPE_MESSAGE:
        return None if depth > 3 else _random_message(field.message_type, random_, depth + 1)
    if kind in (field.TYPE_INT32, field.TYPE_SINT32, field.TYPE_SFIXED32):
        return random_.choice(I32)
    if kind in (field.TYPE_UINT32, field.TYPE_FIXED32):
        return random_.choice([abs(number) for number in I32])
    if kind in (field.TYPE_INT64, field.TYPE_SINT64, field.TYPE_SFIXED64):
        return random_.choice(I64)
    if kind in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return random_.choice([abs(number) for number in I64])
    if kind == field.TYPE_ENUM:
        return random_.choice((-1, 0, 1, 2, 77, (1 << 31) - 1))
    if kind == field.TYPE_BOOL:
        return random_.random() < 0.5
    if kind == field.TYPE_BYTES:
        return random_.randbytes(random_.choice((0, 1, 10, 5000)))
    if kind == field.TYPE_STRING:
        return random_.choice(TEXTS)
    return random_.random()


def _random_message(descriptor: Any, random_: random.Random, depth: int = 0) -> bytes:
    """A wire message of random fields, by hand: it may say what the library would refuse to build."""
    data = b""
    for field in descriptor.fields:
        if random_.random() < 0.25:
            continue
        for _ in range(random_.choice((1, 1, 2, 30)) if field.is_repeated else 1):
            value = _random_value(field, random_, depth)
            if value is None:
                continue
            if isinstance(value, bool | int):
                data += _varint(field.number << 3) + _varint(value & ((1 << 64) - 1))
            elif isinstance(value, float):
                data += _varint(field.number << 3 | 1) + struct.pack("<d", value)
            else:
                raw = value.encode() if isinstance(value, str) else value
                data += _varint(field.number << 3 | 2) + _varint(len(raw)) + raw
    return data


def _varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data += bytes((number & 127 | 128,))
        number >>= 7
    return data + bytes((number,))


def _methods(stack: Stack) -> list[tuple[str, str, Any]]:
    """Address, path and descriptor of every unary RPC of every service."""
    found = []
    modules = {"gateway": pb, "commitlog": log_pb, "consumequeue": queue_pb, "index": index_pb, "schedule": schedule_pb}
    for name, module in modules.items():
        if name in stack.addresses:
            for service in module.DESCRIPTOR.services_by_name.values():
                found += [
                    (stack.addresses[name], f"/{service.full_name}/{method.name}", method)
                    for method in service.methods
                    if not method.client_streaming and not method.server_streaming
                ]
    return found


# A random request to one of these may be a good one.
WRITES = frozenset(
    {
        *("AppendMessages", "ReportProgress", "AppendInternal", "CommitOffsets", "ResetOffsets", "ResendDeadLetters"),
        *("SendBackMessages", "LockQueues", "SendRequest"),
        *("CreateTopic", "UpdateTopic", "DeleteTopic", "UpdateConsumerGroup", "DeleteConsumerGroup"),
    }
)


def _ask_at_random(methods: list[tuple[str, str, Any]], random_: random.Random, count: int) -> list[object]:
    """What was answered otherwise than by an answer or a refusal."""
    wrong: list[object] = []
    outcomes: dict[str, int] = {}
    with contextlib.ExitStack() as channels:
        opened = {
            address: channels.enter_context(grpc.insecure_channel(address)) for address in {row[0] for row in methods}
        }
        for _ in range(count):
            address, path, method = random_.choice(methods)
            data = _random_message(method.input_type, random_)
            is_message = random_.random() < 0.9
            if not is_message:
                data = random_.randbytes(random_.choice((1, 3, 20, 3000)))
            call = opened[address].unary_unary(path, request_serializer=None, response_deserializer=None)
            try:
                answer = call(data, timeout=WAIT_SECONDS_MAX)
                assert len(answer) <= 4 << 20
                outcome = "OK"
            except grpc.RpcError as error:
                outcome = error.code().name
                if error.code() not in (REFUSALS if is_message else UNREADABLE):
                    wrong.append((path, error, data[:500].hex()))
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(outcomes)
    return wrong


def test_random_requests_to_every_rpc_are_answered_or_refused(stack: Stack) -> None:
    """Fields at the edges of their types, texts that climb and hide, unknown enums, a tenth of them no message at all."""
    random_ = random.Random(pick_seed("hostile requests"))
    methods = [row for row in _methods(stack) if row[2].name not in WRITES]
    assert len(methods) >= 8
    with _unharmed(stack):
        assert _ask_at_random(methods, random_, amount(sample=150, change=500, full=20_000)) == []


def test_rmq_1637_no_append_over_the_wire_makes_a_file_by_its_topic(stack: Stack) -> None:
    """1,000+ names through the gateway, in batches that all must fail and streams that go on."""
    names = [name for name in hostile_names() if not any("\ud800" <= c <= "\udfff" for c in name)]
    with _unharmed(stack):
        requests = [pb.AppendMessageStreamRequest(messages=[new_message(name, b"x")]) for name in names]
        answers = list(stack.gateway.AppendMessageStream(iter(requests), timeout=120))
        assert len(names) == len(answers) >= 1000
        assert {grpc.StatusCode.INVALID_ARGUMENT.value[0]} == {answer.error.code for answer in answers}
        for name in names[:20]:
            for query, request in (
                (stack.gateway.QueryMessageByKey, pb.QueryMessageByKeyRequest(topic=name, key="k")),
                (stack.gateway.QueryMessageByOffset, pb.QueryMessageByOffsetRequest(topic=name)),
            ):
                with pytest.raises(grpc.RpcError) as refused:
                    query(request, timeout=WAIT_SECONDS_MAX)
                assert refused.value.code() in REFUSALS


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_bad_utf8_on_the_wire_is_refused(stack: Stack, text: bytes) -> None:
    """In a topic, a key and a property: the library or the check refuses, nothing is stored."""
    append = "/reput.gateway.v1.GatewayService/AppendMessages"
    message = b"\x0a" + _varint(len(text)) + text
    with _unharmed(stack):
        call = stack.channel.unary_unary(append, request_serializer=None, response_deserializer=None)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\x0a" + _varint(len(message)) + message, timeout=WAIT_SECONDS_MAX)
        assert refused.value.code() in UNREADABLE


def test_oversized_metadata_is_refused(stack: Stack) -> None:
    with _unharmed(stack):
        for size in (20_000, 200_000):
            with pytest.raises(grpc.RpcError) as refused:
                stack.gateway.GetStatus(
                    pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX, metadata=[("x-large", "x" * size)]
                )
            assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)


def test_oversized_requests_are_refused(stack: Stack) -> None:
    """Above what a request may have: in one message, and in the sum of many."""
    with _unharmed(stack):
        for messages in ([new_message("T", b"x" * (5 << 20))], [new_message("T", b"x" * 8192)] * 600):
            with pytest.raises(grpc.RpcError) as refused:
                stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
            assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
        with pytest.raises(grpc.RpcError) as refused:
            many = pb.AppendMessagesRequest(messages=[new_message("T", b"x")] * 1025)
            stack.gateway.AppendMessages(many, timeout=WAIT_SECONDS_MAX)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_decompression_bomb_is_refused_before_it_is_large(stack: Stack) -> None:
    """64 MiB of zeros as gzip on the wire."""
    bomb = pb.AppendMessagesRequest(messages=[new_message("T", bytes(64 << 20))])
    assert len(gzip.compress(bytes(1 << 20))) < 1 << 12
    with _unharmed(stack):
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as refused:
                stack.gateway.AppendMessages(bomb, timeout=WAIT_SECONDS_MAX, compression=grpc.Compression.Gzip)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_garbage_on_every_port_hurts_nobody(stack: Stack) -> None:
    """300 raw connections, half of which begin like HTTP/2; some are closed at once, some stay silent."""
    random_ = random.Random(pick_seed("garbage"))
    ports = [address for name, address in stack.addresses.items() if ":" in address and not address.startswith("unix")]
    with _unharmed(stack):
        silent: list[socket.socket] = []
        for number in range(amount(sample=60, change=300, full=3000)):
            host, _, port = random_.choice(ports).rpartition(":")
            with contextlib.suppress(OSError):
                connection = socket.create_connection((host, int(port)), timeout=5)
                with contextlib.suppress(OSError):
                    if number % 2:
                        connection.sendall(HTTP2_PREFACE)
                    connection.sendall(random_.randbytes(random_.choice((0, 1, 9, 100, 20_000))))
                if number % 10 == 0 and len(silent) < 100:
                    silent.append(connection)
                else:
                    connection.close()
        _serves(stack)
        for connection in silent:
            connection.close()


def test_many_clients_at_once_are_answered_or_told_to_come_back(stack: Stack) -> None:
    """Threads that all ask for much, with tiny deadlines among them."""
    random_ = random.Random(pick_seed("many clients"))
    failures: list[object] = []
    seeds = [random_.random() for _ in range(8)]

    def client(chance: random.Random) -> None:
        with grpc.insecure_channel(stack.addresses["gateway"]) as channel:
            call = channel.unary_unary(
                "/reput.gateway.v1.GatewayService/QueryMessageByKey",
                request_serializer=pb.QueryMessageByKeyRequest.SerializeToString,
                response_deserializer=pb.QueryMessageByKeyResponse.FromString,
            )
            for _ in range(amount(sample=10, change=60, full=2000)):
                hurry = chance.random() < 0.3
                request = pb.QueryMessageByKeyRequest(topic="T", key="k", page_size=(1 << 31) - 1)
                try:
                    call(request, timeout=0.001 if hurry else WAIT_SECONDS_MAX)
                except grpc.RpcError as error:
                    allowed = {grpc.StatusCode.RESOURCE_EXHAUSTED}
                    if hurry:
                        allowed |= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
                    if error.code() not in allowed:
                        failures.append(error)

    with _unharmed(stack):
        threads = [threading.Thread(target=client, args=(random.Random(number),)) for number in seeds]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        print(f"{time.monotonic() - began:.1f} s")


def test_random_requests_that_may_write_are_answered_or_refused(stack: Stack) -> None:
    """Last, because the good ones among them change the store."""
    random_ = random.Random(pick_seed("hostile writes"))
    methods = [row for row in _methods(stack) if row[2].name in WRITES - {"AppendMessages", "ReportProgress"}]
    assert len(methods) >= 8
    assert _ask_at_random(methods, random_, amount(sample=100, change=400, full=10_000)) == []
    _serves(stack)
