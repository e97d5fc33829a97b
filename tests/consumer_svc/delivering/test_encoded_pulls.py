"""Pulls as bytes, from the files of a real log: each is the pull as messages, with the kernel and without it."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.life_parts import LifeParts
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.queue_locks import QueueLocks
from consumer_svc.servicer import ConsumerServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_LIVE, StoredMessage
from services.calling.commitlog import CommitLogClient
from services.calling.pulled_bytes import PulledBytes
from services.convert import stored_message
from services.following.follower_progress import FollowerProgress
from services.local import encoded_records
from services.reading.queue_reader import QueueReader
from services.reading.recent_units import RecentUnits
from store.derive.dispatch_columns import DispatchColumns
from store.errors import StoreError
from store.files.file_system import RealFileSystem
from store.format.host import Host
from store.format.record import decode_record
from tests.commitlog_svc.support import BORN_HOST, append, new_message
from tests.consumer_svc.memory_log import LogLife
from tests.services.local.test_log_files import Served, served
from tests.support.calls import Answers
from tests.support.dispatches import requests_of
from tests.support.kernels import kernel_mode, with_kernels

__all__ = ["kernel_mode", "with_kernels"]

COUNT, TOPIC, SHOWN_AS = 160, "orders", "broker-x"
CONTEXT: Any = None


class Queues(Answers):
    """The consumequeue service, without a wire."""

    def __init__(self, root: Path, columns: DispatchColumns) -> None:
        progress = FollowerProgress()
        table = ConsumeQueueTable(root, RealFileSystem(), 2_000)
        table.apply(columns)
        progress.see_log(0, 1 << 40)
        self.servicer = ConsumeQueueServicer(progress, lambda units, _: [])
        self.servicer.open(table)
        self.pages = 0

    def GetQueueUnits(self, request: queue_pb.GetQueueUnitsRequest) -> queue_pb.GetQueueUnitsResponse:
        self.pages += request.packed
        return self.servicer.GetQueueUnits(request, CONTEXT)


class Pulling:
    """A consumer service over the records of a queue: most are ordinary, one is damaged, the first file is removed."""

    def __init__(self, it: Served, root: Path, address: str, life: LogLife, chance: random.Random) -> None:
        for number in range(COUNT):
            properties = {f"name-{place}": "x" for place in range(70)} if chance.random() < 0.1 else {"名": "值"}
            body = chance.randbytes(chance.choice((1, 20, 300, 3_000)))
            message = new_message(body, queue_id=0, tags="T", keys=["k", str(number)], properties=properties)
            born_host = Host("2001:db8::7", 1) if number % 23 == 5 else BORN_HOST
            it.log.opened.appends.append_messages([message], sync=True, born_host=born_host)
            append(it.log, new_message(b"between", queue_id=number % 3))
        requests = [request for request in requests_of(root) if request.queue_id == 0]
        self.count = len(requests)
        self.damaged = self.count * 2 // 3
        first, *files = sorted((root / "commitlog").iterdir())
        at = requests[self.damaged].commit_log_offset
        (path,) = [path for path in files if 0 <= at - int(path.name) < path.stat().st_size]
        with path.open("r+b") as file:
            file.seek(at - int(path.name) + 88)
            file.write(b"damage")
        columns = DispatchColumns.of(requests)
        self.queues = Queues(root.parent / "queues", columns)
        self.life = life
        self.address = address
        self.columns = columns
        self.removed_file = first

    def servicer(self, *, is_recent: bool) -> ConsumerServicer:
        recent = RecentUnits()
        if is_recent:
            recent.add(self.columns)
        else:
            recent.set_ends([(TOPIC, 0, self.count)])
        self.life.life.reader = QueueReader(recent, self.queues, CommitLogClient(self.address))
        servicer = ConsumerServicer(
            FollowerProgress(),
            LiveConsumers(lambda: 0.0),
            QueueLocks(lambda: 0.0),
            Arrivals(),
            threading.Event().is_set,
        )
        servicer.open(LifeParts.of(self.life.life))
        return servicer


@pytest.fixture
def pulling(tmp_path: Path, life: LogLife) -> Iterator[Pulling]:
    address = f"unix:{tmp_path}/s.sock"
    with served(tmp_path / "s", address) as it:
        yield Pulling(it, tmp_path / "s", address, life, random.Random(21))


def outcome(pull: Callable[..., Any], servicer: ConsumerServicer, **fields: Any) -> Any:
    try:
        return pull(servicer, topic=TOPIC, **fields)
    except StoreError as error:
        return type(error), error.message, error.metadata


def as_messages(servicer: ConsumerServicer, **fields: Any) -> pb.PullMessagesResponse:
    answer = pb.PullMessagesResponse.FromString(servicer.pull_bytes(pb.PullMessagesRequest(**fields), CONTEXT))
    for message in answer.messages:
        message.broker_name, message.source = SHOWN_AS, MESSAGE_SOURCE_LIVE
    answer.shown_as = SHOWN_AS
    return answer


def as_bytes(servicer: ConsumerServicer, **fields: Any) -> pb.PullMessagesResponse:
    data = servicer.pull_bytes(pb.PullMessagesRequest(shown_as=SHOWN_AS, **fields), CONTEXT)
    pulled = PulledBytes.FromString(data)
    assert not pulled.head.messages
    answer = pb.PullMessagesResponse.FromString(pulled.messages.tobytes())
    assert not answer.next_offset
    answer.MergeFrom(pulled.head)
    assert answer == pb.PullMessagesResponse.FromString(data)
    return answer


@pytest.mark.parametrize("is_recent", [True, False], ids=["recent", "old"])
def test_a_pull_as_bytes_is_the_pull_as_messages(pulling: Pulling, kernel_mode: str, is_recent: bool) -> None:
    servicer, chance = pulling.servicer(is_recent=is_recent), random.Random(4)
    asks: list[dict[str, Any]] = [
        {"queue_offset": at, "max_messages": 32} for at in (-1, 0, pulling.count - 1, pulling.count, 1_000)
    ]
    asks += [{"queue_offset": at, "max_messages": 1_024, "max_bytes": 4 << 20} for at in (0, pulling.damaged + 1)]
    asks += [{"queue_offset": pulling.damaged, "max_messages": 32}]
    asks += [
        {
            "queue_offset": chance.randrange(pulling.count),
            "max_messages": chance.choice((1, 16, 17, 40, 1_024)),
            "max_bytes": chance.choice((0, 1, 500, 5_000, 20_000)),
        }
        for _ in range(60)
    ]
    asks += [{"queue_offset": 0, "max_messages": 64, "filter": gateway_pb.MessageFilter(tags="T")}]
    asks += [{"queue_offset": 0, "max_messages": 64, "filter": gateway_pb.MessageFilter(sql="名 = '值'")}]
    for ask in asks:
        assert outcome(as_bytes, servicer, **ask) == outcome(as_messages, servicer, **ask), ask


@pytest.mark.parametrize("is_recent", [True, False], ids=["recent", "old"])
def test_records_and_messages_in_turns_are_the_queue(pulling: Pulling, kernel_mode: str, is_recent: bool) -> None:
    """Records of IPv6 hosts come as messages, in answers of their own."""
    servicer = pulling.servicer(is_recent=is_recent)
    whole = as_messages(servicer, topic=TOPIC, max_messages=1_024, max_bytes=4 << 20)
    found: list[StoredMessage] = []
    forms: list[bool] = []
    while len(found) < pulling.damaged:
        answer = as_bytes(servicer, topic=TOPIC, queue_offset=len(found), max_messages=50, as_records=True)
        assert bool(answer.records) != bool(answer.messages)
        shown = [stored_message(decode_record(frame), SHOWN_AS) for frame in answer.records] or answer.messages
        found += shown
        forms.append(bool(answer.records))
        assert answer.next_offset == len(found)
        assert answer.is_whole
    for message in found:
        message.source = MESSAGE_SOURCE_LIVE
    assert found == list(whole.messages)
    assert any(forms), "also where no kernel is compiled: then its source runs"
    assert not all(forms)
    with pytest.raises(StoreError):
        as_bytes(servicer, topic=TOPIC, queue_offset=pulling.damaged, max_messages=50, as_records=True)
    wanted = as_bytes(
        servicer, topic=TOPIC, max_messages=50, as_records=True, filter=gateway_pb.MessageFilter(tags="T")
    )
    assert wanted.records
    assert not wanted.messages


@pytest.mark.parametrize("is_recent", [True, False], ids=["recent", "old"])
@pytest.mark.parametrize(
    "wanted",
    [
        {"tags": "T || Q"},
        {"tags": "Q"},
        {"sql": "KEYS IS NOT NULL"},
        {"sql": "KEYS IN ('k 1', 'k 30', 'k 31', 'k 77')"},
    ],
    ids=str,
)
def test_filtered_records_in_turns_are_the_filtered_queue(
    pulling: Pulling, kernel_mode: str, is_recent: bool, wanted: dict[str, str]
) -> None:
    servicer, chance = pulling.servicer(is_recent=is_recent), random.Random(9)
    chosen = gateway_pb.MessageFilter(**wanted)
    whole = as_messages(servicer, topic=TOPIC, max_messages=1_024, max_bytes=4 << 20, filter=chosen)
    found: list[StoredMessage] = []
    at = 0
    while at < pulling.damaged and len(found) < len(whole.messages):
        limits = {"max_messages": chance.choice((1, 7, 50)), "max_bytes": chance.choice((1, 4_000, 100_000))}
        answer = as_bytes(servicer, topic=TOPIC, queue_offset=at, as_records=True, filter=chosen, **limits)
        shown = [stored_message(decode_record(frame), SHOWN_AS) for frame in answer.records] or answer.messages
        assert len(shown) <= limits["max_messages"]
        assert len(shown) == 1 or sum(len(message.body) for message in shown) <= limits["max_bytes"]
        assert bool(shown) == (answer.status == gateway_pb.PULL_STATUS_FOUND)
        assert answer.next_offset > at
        found += shown
        at = answer.next_offset
    for message in found:
        message.source = MESSAGE_SOURCE_LIVE
    assert found == list(whole.messages)


def test_filtered_records_are_not_decoded_as_messages(
    pulling: Pulling, with_kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer = pulling.servicer(is_recent=True)
    read: list[int] = []
    monkeypatch.setattr(CommitLogClient, "get_many", lambda client, offsets, **options: read.append(len(offsets)))
    answer = as_bytes(
        servicer, topic=TOPIC, max_messages=4, as_records=True, filter=gateway_pb.MessageFilter(sql="TAGS = 'T'")
    )
    assert len(answer.records) == 4
    assert not read


def test_ordinary_records_are_not_decoded(
    pulling: Pulling, with_kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer = pulling.servicer(is_recent=False)
    plain: list[int] = []
    read = CommitLogClient.get_many

    def noted(client: CommitLogClient, offsets: Any, **options: Any) -> Any:
        plain.append(len(offsets))
        return read(client, offsets, **options)

    monkeypatch.setattr(CommitLogClient, "get_many", noted)
    answer = as_bytes(servicer, topic=TOPIC, max_messages=1_024, max_bytes=4 << 20)
    odd_count = sum(len(message.properties) > 64 or "[" in message.born_host for message in answer.messages)
    assert len(answer.messages) == pulling.damaged
    assert len(plain) <= odd_count + 1
    assert pulling.queues.pages == 1


def test_records_that_retention_removed_are_passed_over_alike(
    pulling: Pulling, with_kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units of the queues are removed later than the log file that they point to."""
    servicer = pulling.servicer(is_recent=True)
    as_bytes(servicer, topic=TOPIC, max_messages=32)  # the file is open
    pulling.removed_file.unlink()
    expected = outcome(as_messages, servicer, max_messages=64)
    assert outcome(as_bytes, servicer, max_messages=64) == expected


def test_pulls_of_few_messages_do_not_ask_for_runs(pulling: Pulling, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def encode(
        encoder: encoded_records.RecordEncoder, form: object, queue_offset: int, *args: Any, **options: Any
    ) -> None:
        asked.append(queue_offset)  # None: the kernel is not compiled

    monkeypatch.setattr(encoded_records.RecordEncoder, "encode", encode)
    servicer = pulling.servicer(is_recent=True)
    assert as_bytes(servicer, topic=TOPIC, max_messages=8).messages
    assert not asked  # they are read one by one
    assert as_bytes(servicer, topic=TOPIC, max_messages=32).messages
    assert asked
