"""Pages of large answers through running services: everything, once, and never more than a default client takes."""

import collections
import contextlib
import itertools
import pathlib
import re
import resource
import threading

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1 import message_pb2
from tests.support.service import Service
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "Paging"
BATCH_COUNT = 1_000
PROCESS_BYTES_MAX = 512 << 20


def append_many(stack: Stack, first: int, count: int) -> None:
    for begin in range(first, first + count, BATCH_COUNT):
        messages = [
            new_message(TOPIC, b"%d" % number, keys=["all"], queue_id=number % 4)
            for number in range(begin, begin + BATCH_COUNT)
        ]
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=60)


def page(stack: Stack, token: str, size: int) -> pb.QueryMessageByKeyResponse:
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key="all", page_size=size, page_token=token)
    return stack.gateway.QueryMessageByKey(request, timeout=60)


@pytest.mark.life
def test_20_000_messages_of_one_key_come_once_each_over_index_files_a_writer_and_a_restart(
    tmp_path: pathlib.Path,
) -> None:
    """Newest first; what is appended behind the first page's answer is not part of it."""
    count = 20_000
    settings = {"REPUT_INDEX_ENTRY_COUNT_MAX": "12000", "REPUT_INDEX_HASH_SLOT_COUNT": "1000"}
    found: list[int] = []
    token = ""
    with running_stack(tmp_path / "store", settings=settings) as stack:
        append_many(stack, 0, count)
        stack.wait_until_built()
        while len(found) < count // 2:
            answer = page(stack, token, 500)
            assert len(answer.messages) == 500
            found += [int(message.body) for message in answer.messages]
            token = answer.next_page_token
            if len(found) % 2_000 == 0:
                append_many(stack, count + len(found), BATCH_COUNT)
        stack.wait_until_built()
    with running_stack(tmp_path / "store", settings=settings) as stack:
        while token:
            answer = page(stack, token, 500)
            assert answer.completeness != message_pb2.COMPLETENESS_PARTIAL
            found += [int(message.body) for message in answer.messages]
            token = answer.next_page_token
    assert found == list(reversed(range(count)))
    assert len(list((tmp_path / "store" / "index").iterdir())) > 2, "the test wants several index files"


@pytest.mark.life
def test_64_messages_of_4_mib_by_key_fit_a_default_client_and_services_limited_to_512_mib(
    tmp_path: pathlib.Path,
) -> None:
    """A page has at most 3.5 MiB; a body that fits none comes by DownloadBody.

    The limit is on what a process may allocate for itself (RLIMIT_DATA), thread stacks included: one that wants more gets
    MemoryError or dies. On addresses (RLIMIT_AS) it would count files that are only mapped.
    """
    with running_stack(tmp_path / "store") as stack:
        children = stack.children()
        assert sorted(children) == [
            "commitlog_svc",
            "consumequeue_svc",
            "consumer_svc",
            "gateway",
            "index_svc",
            "schedule_svc",
        ]
        # Thread stacks count as allocated, and the followers of a log have theirs in one process.
        for pid, service_count in collections.Counter(children.values()).items():
            limit = PROCESS_BYTES_MAX * service_count
            resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
        bodies = [bytes([number]) * (4 << 20) for number in range(64)]
        for body in bodies:
            request = pb.AppendMessagesRequest(messages=[new_message(TOPIC, body, keys=["all"])])
            stack.gateway.AppendMessages(request, timeout=60)
        stack.wait_until_built()
        found: list[bytes] = []
        token = ""
        while True:
            answer = page(stack, token, 64)
            for message in answer.messages:
                assert message.body_omitted
                download = pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id)
                found.append(b"".join(piece.chunk for piece in stack.gateway.DownloadBody(download, timeout=60)))
            token = answer.next_page_token
            if not token:
                break
        assert found == bodies[::-1]
        assert stack.children() == children, "none had to be started again"
        for name, pid in children.items():
            peak = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
            assert peak is not None
            assert int(peak[1]) * 1024 < PROCESS_BYTES_MAX, name


@pytest.mark.life
def test_a_cursor_outlives_appends_and_a_restart_of_index_and_gateway(tmp_path: pathlib.Path) -> None:
    """A writer never stops, the index is killed and comes back, another gateway goes on with the token: once each."""
    count, page_size = 2_000, 90
    store = tmp_path / "store"
    settings = {"REPUT_INDEX_ENTRY_COUNT_MAX": "600", "REPUT_INDEX_HASH_SLOT_COUNT": "50"}
    stopping = threading.Event()
    with contextlib.ExitStack() as processes:
        log = processes.enter_context(Service("commitlog", store, settings))
        settings["REPUT_COMMITLOG_TARGET"] = log.address
        queues = processes.enter_context(Service("consumequeue", store, settings))
        settings["REPUT_CONSUMEQUEUE_TARGET"] = queues.address

        def append(begin: int, end: int) -> None:
            messages = [new_message(TOPIC, b"%d" % number, keys=["all"]) for number in range(begin, end)]
            log.stub.AppendMessages(commitlog_pb.AppendMessagesRequest(messages=messages), timeout=60)

        def write_on() -> None:
            for begin in itertools.count(count, 5):
                if stopping.is_set():
                    return
                append(begin, begin + 5)

        def indexed(index: Service) -> int:
            return index.stub.GetStatus(index_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).next_offset

        for begin in range(0, count, 500):
            append(begin, begin + 500)
        end_offset = log.stub.GetStatus(commitlog_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset
        writer = threading.Thread(target=write_on)
        found: list[int] = []
        token = ""
        try:
            for round_number in itertools.count():
                with Service("index", store, settings) as index:
                    while indexed(index) < end_offset:
                        pass
                    settings["REPUT_INDEX_TARGET"] = index.address
                    with Service("gateway", tmp_path, settings) as gateway:
                        for _ in range(8):
                            request = pb.QueryMessageByKeyRequest(
                                topic=TOPIC, key="all", page_size=page_size, page_token=token
                            )
                            answer = gateway.stub.QueryMessageByKey(request, timeout=60)
                            found += [int(message.body) for message in answer.messages]
                            token = answer.next_page_token
                            if not token:
                                break
                if not round_number:
                    writer.start()
                if not token:
                    break
        finally:
            stopping.set()
            if writer.ident is not None:
                writer.join()
    assert round_number >= 2
    assert found == list(reversed(range(count)))
