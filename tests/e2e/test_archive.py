"""Messages whose log files retention has taken, through a gateway with an archive or a cold tier."""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest

from pipeline.archive import archive as archive_job
from pipeline.archive import ship_cold
from pipeline.rocketmq.errors import FilterNotAppliedError
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.e2e.test_retention import EXPIRING, MESSAGE_COUNT, QUEUE_COUNT, SMALL_FILES, append_all, wait_until_expired
from tests.pipeline.rocketmq.gateways import read_batch
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

LIVE, ARCHIVE = message_pb2.MESSAGE_SOURCE_LIVE, message_pb2.MESSAGE_SOURCE_ARCHIVE
TOPIC = "Expiring"
BODIES = {f"k-{i}": b"%04d" % i * 200 for i in range(MESSAGE_COUNT)}


class Expired:
    """A stack on a store that has lost all log files but the newest; `service` has them."""

    def __init__(
        self, stack: HostedStack, receipts: list[message_pb2.AppendResult], first_offset: int, service: str
    ) -> None:
        self.stack = stack
        self.service = service
        self.receipts = receipts
        self.first_offset = first_offset

    def source_of(self, receipt: message_pb2.AppendResult) -> int:
        return LIVE if receipt.commit_log_offset >= self.first_offset else ARCHIVE


@pytest.fixture(scope="module")
def archived_root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A store with its archive, its cold tier and receipts."""
    root = tmp_path_factory.mktemp("expiring")
    with hosted_stack(root / "store", settings=SMALL_FILES) as stack:
        receipts = append_all(stack)
        stack.wait_until_built()
        archive_job.run(None, root / "store", root / "archive")
        ship_cold.run(root / "store", f"file://{root}/cold")
    (root / "receipts").write_bytes(pb.AppendMessagesResponse(results=receipts).SerializeToString())
    return root


def receipts_of(root: pathlib.Path) -> list[message_pb2.AppendResult]:
    return list(pb.AppendMessagesResponse.FromString((root / "receipts").read_bytes()).results)


@pytest.fixture(scope="module", params=["archive", "cold"])
def expired(request: pytest.FixtureRequest, archived_root: pathlib.Path) -> Iterator[Expired]:
    places = {
        "archive": {"REPUT_GATEWAY_ARCHIVE": str(archived_root / "archive")},
        "cold": {
            "REPUT_GATEWAY_COLD": f"file://{archived_root}/cold",
            "REPUT_GATEWAY_COLD_CACHE": str(archived_root / "cache"),
            "REPUT_GATEWAY_COLD_CACHE_BYTES": "0",  # what is damaged is seen
        },
    }
    with hosted_stack(archived_root / "store", settings=EXPIRING | places[request.param]) as stack:
        status = wait_until_expired(stack)
        receipts = receipts_of(archived_root)
        gone = [receipt for receipt in receipts if receipt.commit_log_offset < status.log_first_offset]
        assert len(receipts) > len(gone) > MESSAGE_COUNT // 2
        yield Expired(stack, receipts, status.log_first_offset, request.param)


def test_every_message_is_found_by_id_by_key_and_by_unique_key(expired: Expired):
    gateway = expired.stack.gateway
    for i, receipt in enumerate(expired.receipts):
        by_id = gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=receipt.offset_msg_id), timeout=WAIT_SECONDS_MAX
        )
        keyed = gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"k-{i}"), timeout=WAIT_SECONDS_MAX
        )
        unique = gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=receipt.unique_key), timeout=WAIT_SECONDS_MAX
        )
        for answer in (keyed, unique):
            assert message_pb2.COMPLETENESS_COMPLETE == answer.completeness
            assert 1 == len(answer.messages)
        for message in (by_id.message, keyed.messages[0], unique.messages[0]):
            assert (receipt.offset_msg_id, BODIES[f"k-{i}"], expired.source_of(receipt), receipt.broker_name) == (
                message.offset_msg_id,
                message.body,
                message.source,
                message.broker_name,
            )


@pytest.mark.parametrize("page_size", [1000, 7])
def test_pages_of_a_key_go_on_into_the_archive(expired: Expired, page_size: int):
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key="all", page_size=page_size)
    found: list[message_pb2.StoredMessage] = []
    while True:
        answer = expired.stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
        found += answer.messages
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token

    assert message_pb2.COMPLETENESS_COMPLETE == answer.completeness
    assert [(r.offset_msg_id, expired.source_of(r)) for r in reversed(expired.receipts)] == [
        (message.offset_msg_id, message.source) for message in found
    ]


def test_queues_read_from_their_first_message_on(expired: Expired):
    for queue_id in range(QUEUE_COUNT):
        expected = [receipt for receipt in expired.receipts if receipt.queue_id == queue_id]
        request = pb.QueryMessageByOffsetRequest(topic=TOPIC, queue_id=queue_id, queue_offset=0, max_messages=1000)
        answer = expired.stack.gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX)
        assert [(r.queue_offset, r.offset_msg_id, expired.source_of(r)) for r in expected] == [
            (message.queue_offset, message.offset_msg_id, message.source) for message in answer.messages
        ]
        assert (0, len(expected), message_pb2.COMPLETENESS_COMPLETE) == (
            answer.min_offset,
            answer.max_offset,
            answer.completeness,
        )


def test_bodies_come_in_pieces_from_the_archive_and_the_status_names_it(expired: Expired):
    oldest = expired.receipts[0]
    chunks = expired.stack.gateway.DownloadBody(
        pb.DownloadBodyRequest(offset_msg_id=oldest.offset_msg_id), timeout=WAIT_SECONDS_MAX
    )
    rows = {
        row.service: row
        for row in expired.stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
    }

    assert BODIES["k-0"] == b"".join(piece.chunk for piece in chunks)
    assert (0, "", True) == (
        rows[expired.service].log_first_offset,
        rows[expired.service].problem,
        rows[expired.service].log_end_offset >= expired.first_offset,
    )


def replace_file(path: pathlib.Path, data: bytes) -> None:
    scratch = path.with_suffix(".scratch")
    scratch.write_bytes(data)
    scratch.replace(path)


def tell_of_a_damaged_cold_tier(expired: Expired, archived_root: pathlib.Path) -> None:
    index = min((archived_root / "cold" / "broker-a").glob("*.index"))
    data = index.read_bytes()
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key="k-0")
    index.write_bytes(b"")  # in place: the gateway has it open
    try:
        answer = expired.stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
        assert (message_pb2.COMPLETENESS_PARTIAL, 0) == (answer.completeness, len(answer.messages))
        assert index.name in answer.shards[0].error.message
    finally:
        index.write_bytes(data)
    answer = expired.stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
    assert (message_pb2.COMPLETENESS_COMPLETE, 1) == (answer.completeness, len(answer.messages))


def test_a_damaged_archive_is_told_by_every_answer(expired: Expired, archived_root: pathlib.Path):
    if expired.service == "cold":
        tell_of_a_damaged_cold_tier(expired, archived_root)
        return
    manifest = min((archived_root / "archive" / "segments" / "broker-a").iterdir())
    index = archived_root / "archive" / json.loads(manifest.read_text())["segment"]["keys_path"]
    data = manifest.read_bytes()
    gateway = expired.stack.gateway
    replace_file(manifest, data[:-40])
    try:
        answer = gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key="k-0"), timeout=WAIT_SECONDS_MAX
        )
        assert message_pb2.COMPLETENESS_PARTIAL == answer.completeness
        assert manifest.name in answer.shards[0].error.message
        with pytest.raises(grpc.RpcError) as caught:
            request = pb.QueryMessageByIdRequest(offset_msg_id=expired.receipts[0].offset_msg_id)
            gateway.QueryMessageById(request, timeout=WAIT_SECONDS_MAX)
        assert grpc.StatusCode.DATA_LOSS is caught.value.code()  # type: ignore[attr-defined]
        assert manifest.name in caught.value.details()  # type: ignore[attr-defined]
    finally:
        replace_file(manifest, data)
    assert index.exists()
    answer = gateway.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic=TOPIC, key="k-0"), timeout=WAIT_SECONDS_MAX)
    assert message_pb2.COMPLETENESS_COMPLETE == answer.completeness


def test_without_pyarrow_the_gateway_says_at_its_start_what_to_install(tmp_path: pathlib.Path):
    start = "import runpy, sys; sys.modules['pyarrow'] = None; runpy.run_module('gateway', run_name='__main__')"

    ended = subprocess.run(
        [sys.executable, "-c", start, "--address", "127.0.0.1:0", "--archive", tmp_path],
        capture_output=True,
        timeout=60,
    )

    assert 2 == ended.returncode
    assert b"pip install 'reput[pipeline]'" in ended.stderr
    assert b"--archive" in ended.stderr


def test_a_cold_tier_needs_pyarrow_and_a_cache_and_no_archive(tmp_path: pathlib.Path):
    start = "import runpy, sys; sys.modules['pyarrow'] = None; runpy.run_module('gateway', run_name='__main__')"
    command = [sys.executable, "-c", start, "--address", "127.0.0.1:0", "--cold", f"file://{tmp_path}"]

    alone = subprocess.run(command, capture_output=True, timeout=60)
    cached = subprocess.run([*command, "--cold-cache", tmp_path], capture_output=True, timeout=60)

    assert 2 == alone.returncode == cached.returncode
    assert b"cold needs cold_cache" in alone.stderr
    assert b"pip install 'reput[pipeline]'" in cached.stderr


def test_spark_reads_the_archive_and_says_that_sql_is_not_evaluated_there(expired: Expired):
    endpoint = expired.stack.addresses["gateway"]
    with pytest.raises(FilterNotAppliedError, match=r"Message 0 of .* is archived, and option sql"):
        read_batch(endpoint, subscribe=TOPIC, sql="KEYS IS NOT NULL")

    gone = {(receipt.queue_id, receipt.queue_offset) for receipt in expired.receipts}
    rows = read_batch(endpoint, subscribe=TOPIC, columns="queueId,queueOffset")
    assert {(row["queueId"], row["queueOffset"]) for row in rows} == gone
    first = {
        str(queue_id): min(
            receipt.queue_offset
            for receipt in expired.receipts
            if receipt.queue_id == queue_id and expired.source_of(receipt) == LIVE
        )
        for queue_id in range(QUEUE_COUNT)
    }
    positions = json.dumps({TOPIC: first})
    kept = read_batch(endpoint, assign=json.dumps({TOPIC: [0, 1]}), sql="KEYS IS NOT NULL", startingOffsets=positions)
    assert len(kept) == sum(expired.source_of(receipt) == LIVE for receipt in expired.receipts)
