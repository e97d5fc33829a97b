"""Three shards of real processes behind one gateway: one dead, one that stands still, one that is being rebuilt."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1 import message_pb2
from services.status import from_rpc_error
from store.errors import ServiceUnavailableError
from tests.support.halting import halt, resume
from tests.support.service import Service
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

NAMES = ("shard-a", "shard-b", "shard-c")
TOPIC = "Shards"
MESSAGE_COUNT = 12
# A shard that does not answer takes its share of it.
ASK_SECONDS = 30.0
SETTINGS = {"REPUT_INDEX_HASH_SLOT_COUNT": "500", "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20)}


class Shard:
    """The three services of one shard."""

    def __init__(self, name: str, store: pathlib.Path, processes: contextlib.ExitStack) -> None:
        self.name = name
        self.store = store
        self.settings = {**SETTINGS, "REPUT_BROKER_NAME": name}
        self.log = processes.enter_context(Service("commitlog", store, self.settings))
        self.settings["REPUT_COMMITLOG_TARGET"] = self.log.address
        self.queues = processes.enter_context(Service("consumequeue", store, self.settings))
        self.index = processes.enter_context(Service("index", store, self.settings))

    @property
    def targets(self) -> str:
        return f"{self.name}={self.log.address},{self.queues.address},{self.index.address}"

    def append(self, body: bytes) -> message_pb2.AppendResult:
        request = commitlog_pb.AppendMessagesRequest(messages=[new_message(TOPIC, body, keys=["all", body.decode()])])
        return self.log.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results[0]

    def wait_until_indexed(self, offset: int) -> None:
        def is_indexed() -> bool:
            status = self.index.stub.GetStatus(index_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
            return status.next_offset > offset

        wait_until(is_indexed, f"{self.name} is indexed up to {offset}")


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[tuple[dict[str, Shard], Service, list[tuple[int, str, bytes]]]]:
    """Shards by name, the gateway, and what was appended: (store time, shard, body)."""
    with contextlib.ExitStack() as processes:
        shards = {name: Shard(name, tmp_path / name, processes) for name in NAMES}
        sent = []
        for number in range(MESSAGE_COUNT):
            shard = shards[NAMES[number % len(NAMES)]]
            receipt = shard.append(b"m%d" % number)
            sent.append((receipt.store_time.ToMilliseconds(), shard.name, receipt.commit_log_offset, b"m%d" % number))
        for _, name, offset, _ in sent[-3:]:
            shards[name].wait_until_indexed(offset)
        settings = {"REPUT_GATEWAY_SHARDS": ";".join(shard.targets for shard in shards.values())}
        gateway = processes.enter_context(Service("gateway", tmp_path, settings))
        wait_until(
            lambda: ask(gateway).completeness == message_pb2.COMPLETENESS_COMPLETE, "the gateway has found all indexes"
        )
        yield shards, gateway, sent


def ask(gateway: Service, seconds: float = ASK_SECONDS, **fields: object) -> pb.QueryMessageByKeyResponse:
    return gateway.stub.QueryMessageByKey(
        pb.QueryMessageByKeyRequest(topic=TOPIC, key="all", **fields), timeout=seconds
    )


def newest_first(sent: list[tuple[int, str, int, bytes]], *names: str) -> list[bytes]:
    return [body for _, name, _, body in sorted(sent, reverse=True) if name in names]


def failed(answer: pb.QueryMessageByKeyResponse) -> list[str]:
    return [shard.broker_name for shard in answer.shards if shard.HasField("error")]


def test_answers_are_whole_partial_by_name_or_unavailable(cluster) -> None:
    shards, gateway, sent = cluster
    answer = ask(gateway)
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE
    assert [message.body for message in answer.messages] == newest_first(sent, *NAMES)
    assert [shard.broker_name for shard in answer.shards] == list(NAMES)

    in_pages: list[bytes] = []
    token = ""
    while True:
        cut = ask(gateway, page_size=5, page_token=token)
        in_pages += [message.body for message in cut.messages]
        token = cut.next_page_token
        if not token:
            break
        assert len(cut.messages) == 5, "pages are cut exactly"
    assert in_pages == newest_first(sent, *NAMES)

    # One stands still: the others' matches come within the caller's time.
    slow = shards["shard-c"]
    halt(slow.index.pid)
    try:
        answer = ask(gateway, seconds=10)
        assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
        assert failed(answer) == ["shard-c"]
        assert [message.body for message in answer.messages] == newest_first(sent, "shard-a", "shard-b")
    finally:
        resume(slow.index.pid)
    assert ask(gateway).completeness == message_pb2.COMPLETENESS_COMPLETE

    # One is killed in the middle of a query, which it had taken.
    dying = shards["shard-b"]
    halt(dying.index.pid)
    call = gateway.stub.QueryMessageByKey.future(
        pb.QueryMessageByKeyRequest(topic=TOPIC, key="all"), timeout=WAIT_SECONDS_MAX
    )
    # By then the call that came before it is under way.
    gateway.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
    assert not call.done()
    dying.index.kill()
    answer = call.result()
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert failed(answer) == ["shard-b"]
    assert [message.body for message in answer.messages] == newest_first(sent, "shard-a", "shard-c")

    # It is dead, then all are.
    answer = ask(gateway)
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert failed(answer) == ["shard-b"]
    assert [message.body for message in answer.messages] == newest_first(sent, "shard-a", "shard-c")
    for name in ("shard-a", "shard-c"):
        shards[name].index.kill()
    with pytest.raises(grpc.RpcError) as refused:
        ask(gateway)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert isinstance(from_rpc_error(refused.value), ServiceUnavailableError)


def test_an_index_that_is_being_rebuilt_says_how_far_it_is(cluster) -> None:
    shards, gateway, sent = cluster
    shard = shards["shard-b"]
    address = shard.index.address
    shard.index.kill()
    shutil.rmtree(shard.store / "index")
    shutil.rmtree(shard.store / "reput" / "index")
    halt(shard.log.pid)  # so that there is nothing to rebuild from
    settings = {**shard.settings, "REPUT_INDEX_ADDRESS": address}
    try:
        with Service("index", shard.store, settings, wait="answering"):
            answer = ask(gateway, seconds=8)
            assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
            (outcome,) = [each for each in answer.shards if each.broker_name == "shard-b"]
            assert outcome.HasField("error") or outcome.catching_up
            resume(shard.log.pid)
            while (answer := ask(gateway)).completeness == message_pb2.COMPLETENESS_PARTIAL:
                (outcome,) = [each for each in answer.shards if each.broker_name == "shard-b"]
                assert outcome.HasField("error") or outcome.catching_up or outcome.indexed_up_to_offset >= 0
            assert [message.body for message in answer.messages] == newest_first(sent, *NAMES)
    finally:
        resume(shard.log.pid)
