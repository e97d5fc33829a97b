"""RocketMQ's contract over a real socket, in front of records in memory; appends go to a scripted commitlog."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.appends.forwarder import AppendForwarder
from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.shard import STORE_FACTS, BuildProgress, Built, Shard
from gateway.ports.shards import FanOut, Shards
from gateway.ports.store_facts import StoreFacts
from gateway.queries.freshness import BUILDER_WAIT_SECONDS_DEFAULT, FreshnessWaits
from gateway.queries.page import PageTokens
from gateway.rocketmq.admin import AdminServicer
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.servicer import MessagingServicer, add_messaging_to_server
from gateway.shards.store_facts import with_facts
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from services.observing.meters import APPEND_REFUSED
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidMessageError, ServiceUnavailableError, StoreRecoveringError, UnsupportedStoreError
from store.format.record import Record
from tests.gateway.memory_shard import MemoryShard, with_log_end
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX

ENDPOINTS = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="10.0.0.1", port=80)])


class Stubs:
    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.messaging = v2_grpc.MessagingServiceStub(channel)
        self.admin = v2_grpc.AdminStub(channel)


def messaging(shards: Shards) -> MessagingServicer:
    timers = Timers()
    room = WaitingRoom(timers)
    delivering = DeliveryShards(room)
    clients = Clients(delivering)
    return MessagingServicer(shards, delivering, room, clients, MessagingMembers(clients, timers))


@contextlib.contextmanager
def serving(
    *memories: MemoryShard, commitlog_address: str = "127.0.0.1:1", waits: FreshnessWaits | None = None
) -> Iterator[Stubs]:
    fan_out = FanOut(2)
    shards = Shards([memory.shard(f"broker-{chr(97 + i)}") for i, memory in enumerate(memories)], fan_out)
    server = ServiceServer("gateway", ServiceSettings(address="127.0.0.1:0", worker_count=8))
    with grpc.insecure_channel(commitlog_address) as backend:
        forwarder = AppendForwarder([backend])
        server.add("m", partial(add_messaging_to_server, forwarder=forwarder), messaging(shards))
        server.add("a", v2_grpc.add_AdminServicer_to_server, AdminServicer(shards, PageTokens("secret"), waits))
        address = server.start()
        ended = threading.Thread(target=server.serve_until_stopped)
        ended.start()
        try:
            with grpc.insecure_channel(address) as channel:
                yield Stubs(channel)
        finally:
            server.stop()
            ended.join()
            forwarder.close()
            fan_out.close()


@pytest.fixture(scope="module")
def stubs(records: list[Record]) -> Iterator[Stubs]:
    with serving(MemoryShard(records)) as both:
        yield both


def by_key(record: Record) -> v2.ListMessageRequest:
    return v2.ListMessageRequest(topic=v2.Resource(name=record.topic), message_key=record.keys[0])


def keyed(records: list[Record]) -> Record:
    return next(record for record in records if record.keys and not record.topic.startswith("%"))


def truth(records: list[Record], topic: str, key: str) -> list[int]:
    """Queue offsets with queue ids, newest first."""
    return [
        (record.queue_id, record.queue_offset)
        for record in reversed(records)
        if record.topic == topic and key in record.keys
    ]


def places(response: v2.ListMessageResponse) -> list[tuple[int, int]]:
    assert response.status.code == v2.OK, response.status
    return [(m.system_properties.queue_id, m.system_properties.queue_offset) for m in response.messages]


def test_by_key_in_pages_finds_what_brute_force_finds(stubs: Stubs, records: list[Record]) -> None:
    by_count = {}
    for record in records:
        for key in set(record.keys):
            by_count.setdefault((record.topic, key), []).append(record)
    (topic, key), _ = max(by_count.items(), key=lambda item: len(item[1]))
    request = v2.ListMessageRequest(topic=v2.Resource(name=topic), message_key=key, max_message_nums=3)
    found = []
    while True:
        response = stubs.admin.QueryMessage(request)
        found += places(response)
        assert len(response.messages) <= 3
        if not response.scroll_id:
            break
        request.scroll_id = response.scroll_id
    assert found == truth(records, topic, key)
    assert len(found) > 3, "the test wants several pages"


def test_by_message_id_unique_key_or_offset_msg_id(stubs: Stubs, records: list[Record]) -> None:
    record = next(r for r in records if r.unique_key and not r.topic.startswith("%"))
    copies = [
        (r.queue_id, r.queue_offset)
        for r in reversed(records)
        if (r.topic, r.unique_key) == (record.topic, record.unique_key)
    ]
    request = v2.ListMessageRequest(topic=v2.Resource(name=record.topic), message_id=record.unique_key)
    assert places(stubs.admin.QueryMessage(request)) == copies
    stored = stubs.admin.QueryMessage(request).messages[0]
    assert stored.system_properties.message_id == record.unique_key
    offset_id = MemoryShard(records).get(record.commit_log_offset, _Forever()).offset_msg_id
    request.message_id = offset_id
    assert places(stubs.admin.QueryMessage(request)) == [(record.queue_id, record.queue_offset)]


class _Forever:
    def remaining_seconds(self) -> float:
        return 60.0


def test_the_window_is_inclusive_to_the_millisecond(stubs: Stubs, records: list[Record]) -> None:
    record = keyed(records)
    request = by_key(record)
    time = record.store_time_millis
    expected = [
        (r.queue_id, r.queue_offset)
        for r in reversed(records)
        if r.topic == record.topic and record.keys[0] in r.keys and r.store_time_millis == time
    ]
    request.begin_timestamp.CopyFrom(millis_to_timestamp(time))
    request.end_timestamp.CopyFrom(millis_to_timestamp(time))
    assert places(stubs.admin.QueryMessage(request)) == expected
    request.begin_timestamp.CopyFrom(millis_to_timestamp(time + 1))
    request.end_timestamp.CopyFrom(millis_to_timestamp(time + 1))
    assert (record.queue_id, record.queue_offset) not in places(stubs.admin.QueryMessage(request))


def test_broker_and_queue_narrow_the_search(records: list[Record]) -> None:
    record = keyed(records)
    with serving(MemoryShard(records), MemoryShard([])) as stubs:
        request = by_key(record)
        request.queue_id = record.queue_id
        expected = [place for place in truth(records, record.topic, record.keys[0]) if place[0] == record.queue_id]
        assert places(stubs.admin.QueryMessage(request)) == expected
        request.broker_name = "broker-b"
        assert stubs.admin.QueryMessage(request).status.code == v2.TOPIC_NOT_FOUND
        request.broker_name = "broker-z"
        assert stubs.admin.QueryMessage(request).status.code == v2.NOT_FOUND


def test_a_shard_that_does_not_answer_is_never_a_shorter_list(records: list[Record]) -> None:
    dead = MemoryShard(records, failures={"search": ServiceUnavailableError("down")})
    with serving(MemoryShard(records), dead) as stubs:
        response = stubs.admin.QueryMessage(by_key(keyed(records)))
    assert response.status.code == v2.HA_NOT_AVAILABLE
    assert not response.messages


def test_an_index_that_is_behind_says_so(records: list[Record]) -> None:
    with serving(MemoryShard(records, catching_up=True)) as stubs:
        response = stubs.admin.QueryMessage(by_key(keyed(records)))
    assert response.status.code == v2.OK
    assert "broker-a" in response.status.message


class HeldElsewhere(MemoryShard):
    """A shard of whose topics more may be in tiered storage."""

    def shard(self, broker_name: str = "broker-a") -> Shard:
        held = UnsupportedStoreError("it may be in tiered storage", feature="tiered-storage")
        facts = StoreFacts({"": held})
        return with_facts(super().shard(broker_name).serving(STORE_FACTS, lambda request, deadline: facts))


def test_a_list_that_may_lack_what_a_tier_has_says_so_and_is_no_emptiness(records: list[Record]) -> None:
    with serving(HeldElsewhere(records)) as stubs:
        response = stubs.admin.QueryMessage(by_key(keyed(records)))
        assert (response.status.code, bool(response.messages)) == (v2.OK, True)
        assert "tiered storage" in response.status.message
        response = stubs.admin.QueryMessage(
            v2.ListMessageRequest(topic=v2.Resource(name=keyed(records).topic), message_key="nowhere")
        )
    assert (response.status.code == v2.OK, bool(response.messages)) == (False, False)
    assert "tiered storage" in response.status.message


def test_a_body_that_fits_no_page_is_never_left_out(records: list[Record]) -> None:
    record = keyed(records)
    big = [
        replace(record, body=bytes([n]) * (3 << 20), commit_log_offset=10_000_000 * n, queue_offset=n)
        for n in range(1, 5)
    ]
    with serving(MemoryShard(big)) as stubs:
        request = v2.ListMessageRequest(topic=v2.Resource(name=record.topic), message_key=record.keys[0])
        bodies = []
        while True:
            response = stubs.admin.QueryMessage(request)
            bodies += [message.body for message in response.messages]
            if not response.scroll_id:
                break
            request.scroll_id = response.scroll_id
    assert bodies == [r.body for r in reversed(big)]


BAD_SEARCHES = {
    "nothing looked for": (v2.ListMessageRequest(topic=v2.Resource(name="T")), v2.BAD_REQUEST),
    "no topic": (v2.ListMessageRequest(message_key="k"), v2.ILLEGAL_TOPIC),
    "an empty key": (v2.ListMessageRequest(topic=v2.Resource(name="T"), message_key=""), v2.ILLEGAL_MESSAGE_KEY),
    "an empty id": (v2.ListMessageRequest(topic=v2.Resource(name="T"), message_id=""), v2.ILLEGAL_MESSAGE_ID),
    "by tag": (v2.ListMessageRequest(topic=v2.Resource(name="T"), subscription="TagA"), v2.UNSUPPORTED),
    "a lite topic": (v2.ListMessageRequest(topic=v2.Resource(name="T"), lite_topic="l"), v2.UNSUPPORTED),
    "page 2 without a way": (
        v2.ListMessageRequest(topic=v2.Resource(name="T"), message_key="k", page_num=2),
        v2.UNSUPPORTED,
    ),
    "fewer than none": (
        v2.ListMessageRequest(topic=v2.Resource(name="T"), message_key="k", max_message_nums=-1),
        v2.BAD_REQUEST,
    ),
    "a foreign scroll_id": (
        v2.ListMessageRequest(topic=v2.Resource(name="T"), message_key="k", scroll_id="x"),
        v2.BAD_REQUEST,
    ),
    "an unknown topic": (v2.ListMessageRequest(topic=v2.Resource(name="T"), message_key="k"), v2.TOPIC_NOT_FOUND),
}


@pytest.mark.parametrize(("request_", "code"), BAD_SEARCHES.values(), ids=BAD_SEARCHES.keys())
def test_a_bad_search_has_rocketmqs_code(stubs: Stubs, request_: v2.ListMessageRequest, code: int) -> None:
    response = stubs.admin.QueryMessage(request_)
    assert response.status.code == code, response.status
    assert response.status.message
    assert not response.messages


def test_an_id_that_nobody_has_is_not_found(stubs: Stubs, records: list[Record]) -> None:
    topic = v2.Resource(name=keyed(records).topic)
    for message_id in ("nobody", "7F00000100002A9F00000000DEADBEEF"):
        response = stubs.admin.QueryMessage(v2.ListMessageRequest(topic=topic, message_id=message_id))
        assert response.status.code == v2.MESSAGE_NOT_FOUND, message_id


def test_time_spans_are_those_of_the_queues(stubs: Stubs, records: list[Record]) -> None:
    topic = keyed(records).topic
    response = stubs.admin.QueryTimeSpan(v2.QueryTimeSpanRequest(topics=[v2.Resource(name=topic)]))
    assert response.status.code == v2.OK
    expected = {}
    for record in records:
        if record.topic == topic:
            first, _ = expected.setdefault(record.queue_id, (record.store_time_millis, 0))
            expected[record.queue_id] = (first, record.store_time_millis)
    spans = {span.message_queue.id: (span.min_timestamp, span.max_timestamp) for span in response.queue_time_span_list}
    assert spans == expected
    for topics in ([], [v2.Resource(name="nobody-knows-it")]):
        bad = stubs.admin.QueryTimeSpan(v2.QueryTimeSpanRequest(topics=topics))
        assert bad.status.code == (v2.TOPIC_NOT_FOUND if topics else v2.ILLEGAL_TOPIC)


def test_the_route_of_a_topic_is_its_queues_at_the_address_that_was_called(records: list[Record]) -> None:
    memory = MemoryShard(records, topics={"Configured": 3}, new_topic_queues=2)
    with serving(memory, MemoryShard([], new_topic_queues=0)) as stubs:
        for topic, count in (("Configured", 3), ("Unheard", 2)):
            request = v2.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=ENDPOINTS)
            response = stubs.messaging.QueryRoute(request)
            assert response.status.code == v2.OK
            assert [(q.id, q.broker.name, q.broker.endpoints == ENDPOINTS) for q in response.message_queues] == [
                (i, "broker-a", True) for i in range(count)
            ]
    with serving(MemoryShard(records)) as stubs:
        request = v2.QueryRouteRequest(topic=v2.Resource(name="Unheard"), endpoints=ENDPOINTS)
        assert stubs.messaging.QueryRoute(request).status.code == v2.TOPIC_NOT_FOUND
        request.ClearField("endpoints")
        assert stubs.messaging.QueryRoute(request).status.code == v2.BAD_REQUEST


def test_a_route_is_bounded_whatever_count_a_topic_is_configured_with() -> None:
    memory = MemoryShard([], topics={"hostile": (1 << 31) - 1})
    with serving(memory) as stubs:
        request = v2.QueryRouteRequest(topic=v2.Resource(name="hostile"), endpoints=ENDPOINTS)
        response = stubs.messaging.QueryRoute(request)
    assert response.status.code == v2.OK
    assert [queue.id for queue in response.message_queues] == list(range(8192))


def test_offsets_of_a_queue(stubs: Stubs, records: list[Record]) -> None:
    record = keyed(records)
    queue = [r for r in records if (r.topic, r.queue_id) == (record.topic, record.queue_id)]
    where = v2.MessageQueue(topic=v2.Resource(name=record.topic), id=record.queue_id)

    def ask(policy: int, **fields: object) -> int:
        request = v2.QueryOffsetRequest(message_queue=where, query_offset_policy=policy, **fields)
        response = stubs.messaging.QueryOffset(request)
        assert response.status.code == v2.OK
        return int(response.offset)

    assert ask(v2.BEGINNING) == queue[0].queue_offset
    assert ask(v2.END) == queue[-1].queue_offset + 1
    middle = queue[len(queue) // 2].store_time_millis
    expected = min(r.queue_offset for r in queue if r.store_time_millis >= middle)
    assert ask(v2.TIMESTAMP, timestamp=millis_to_timestamp(middle)) == expected
    for bad in (v2.QueryOffsetRequest(message_queue=where, query_offset_policy=v2.TIMESTAMP),
                v2.QueryOffsetRequest(message_queue=where, query_offset_policy=9)):  # fmt: skip
        assert stubs.messaging.QueryOffset(bad).status.code == v2.BAD_REQUEST
    of_nobody = stubs.messaging.GetOffset(v2.GetOffsetRequest(message_queue=where))
    assert of_nobody.status.code == v2.ILLEGAL_CONSUMER_GROUP


def test_telemetry_answers_settings_with_the_limits_of_the_store(stubs: Stubs) -> None:
    settings = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(max_body_size=1 << 30))
    commands = [v2.TelemetryCommand(settings=settings), v2.TelemetryCommand(), v2.TelemetryCommand(settings=settings)]
    answers = list(stubs.messaging.Telemetry(iter(commands), timeout=WAIT_SECONDS_MAX))
    assert len(answers) == 2, "what is no settings has no answer"
    assert {a.status.code for a in answers} == {v2.OK}
    assert answers[0].settings.publishing.max_body_size == 4 << 20
    assert answers[0].settings.backoff_policy.max_attempts > 1


def test_life_signs_are_answered(stubs: Stubs) -> None:
    assert stubs.messaging.Heartbeat(v2.HeartbeatRequest(client_type=v2.PRODUCER)).status.code == v2.OK
    assert stubs.messaging.Heartbeat(v2.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER)).status.code != v2.OK
    assert stubs.messaging.NotifyClientTermination(v2.NotifyClientTerminationRequest()).status.code == v2.OK


def new_message(number: int, topic: str = "Orders") -> v2.Message:
    return v2.Message(
        topic=v2.Resource(name=topic),
        body=b"body %d" % number,
        system_properties=v2.SystemProperties(message_id=f"ID{number}"),
    )


def test_messages_become_one_append_and_its_receipts_come_back(records: list[Record]) -> None:
    seen = []

    def append(request: commitlog_pb.AppendMessagesRequest, _context: object) -> commitlog_pb.AppendMessagesResponse:
        seen.append(request)
        return commitlog_pb.AppendMessagesResponse(
            results=[
                message_pb2.AppendResult(unique_key=m.unique_key, queue_offset=40 + i)
                for i, m in enumerate(request.messages)
            ]
        )

    with (
        commit_log_server(append_messages=append) as commitlog,
        serving(MemoryShard(records), commitlog_address=commitlog.address) as stubs,
    ):
        request = v2.SendMessageRequest(messages=[new_message(0), new_message(1)])
        response = stubs.messaging.SendMessage(request, timeout=WAIT_SECONDS_MAX)
    assert response.status.code == v2.OK
    assert [(e.status.code, e.message_id, e.offset) for e in response.entries] == [
        (v2.OK, "ID0", 40),
        (v2.OK, "ID1", 41),
    ]
    assert [m.unique_key for m in seen[0].messages] == ["ID0", "ID1"]


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"field": "body", "sizeBytes": 0, "index": 0}, v2.MESSAGE_BODY_EMPTY),
        ({"field": "topic", "perm": "write"}, v2.FORBIDDEN),  # it was ILLEGAL_TOPIC
        ({"field": "topic"}, v2.ILLEGAL_TOPIC),
    ],
)
def test_what_the_commitlog_refuses_has_rocketmqs_code(
    records: list[Record], metadata: dict[str, object], code: int
) -> None:
    def append(_request: object, _context: object) -> None:
        raise InvalidMessageError("no", **metadata)

    with (
        commit_log_server(append_messages=append) as commitlog,
        serving(MemoryShard(records), commitlog_address=commitlog.address) as stubs,
    ):
        response = stubs.messaging.SendMessage(
            v2.SendMessageRequest(messages=[new_message(0)]), timeout=WAIT_SECONDS_MAX
        )
    assert response.status.code == code
    assert not response.entries


def test_refusals_are_counted_by_code_because_their_calls_end_with_ok(records: list[Record]) -> None:
    def append(_request: object, _context: object) -> None:
        raise StoreRecoveringError("ask again")

    def counted() -> list[int]:
        method = "v2.MessagingService/SendMessage"
        return [APPEND_REFUSED.of(method, code).read() for code in ("UNAVAILABLE", "INVALID_ARGUMENT")]

    before = counted()
    with (
        commit_log_server(append_messages=append) as commitlog,
        serving(MemoryShard(records), commitlog_address=commitlog.address) as stubs,
    ):
        response = stubs.messaging.SendMessage(
            v2.SendMessageRequest(messages=[new_message(0)]), timeout=WAIT_SECONDS_MAX
        )
        assert response.status.code == v2.HA_NOT_AVAILABLE
        assert (
            stubs.messaging.SendMessage(v2.SendMessageRequest(), timeout=WAIT_SECONDS_MAX).status.code
            == v2.MESSAGE_CORRUPTED
        )
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1]


def test_what_is_refused_here_never_reaches_a_commitlog(stubs: Stubs) -> None:
    bad = {
        v2.MESSAGE_CORRUPTED: v2.SendMessageRequest(),
        v2.UNSUPPORTED: v2.SendMessageRequest(
            messages=[
                new_message(0),
                v2.Message(
                    topic=v2.Resource(name="Orders"),
                    body=b"x",
                    system_properties=v2.SystemProperties(message_id="x", message_type=77),
                ),
            ]
        ),
    }
    for code, request in bad.items():
        assert stubs.messaging.SendMessage(request, timeout=WAIT_SECONDS_MAX).status.code == code
    two_topics = v2.SendMessageRequest(messages=[new_message(0), new_message(1, "Others")])
    assert stubs.messaging.SendMessage(two_topics, timeout=WAIT_SECONDS_MAX).status.code == v2.MESSAGE_CORRUPTED


def test_bytes_that_are_no_request_are_the_callers_fault(records: list[Record]) -> None:
    with serving(MemoryShard(records)) as stubs:
        raw = stubs.channel.unary_unary("/apache.rocketmq.v2.MessagingService/SendMessage")
        with pytest.raises(grpc.RpcError) as refused:
            raw(b"\xff\xff", timeout=WAIT_SECONDS_MAX)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class Ending(MemoryShard):
    """Its index believes that the log ends where it is; the commitlog knows the end."""

    end = 0

    @property
    def progress_now(self) -> BuildProgress:
        return replace(super().progress_now, log_end_offset=super().progress_now.next_offset)

    def search(self, *arguments, **named) -> Built:
        found = super().search(*arguments, **named)
        offsets = found.answer.commit_log_offsets
        offsets[:] = [offset for offset in offsets if offset < found.progress.next_offset]
        return found

    def is_written_at(self, *arguments) -> bool | None:
        return None

    def offset(self, request, deadline) -> int | None:
        return self.end

    def shard(self, broker_name: str = "broker-a") -> Shard:
        return with_log_end(super().shard(broker_name), self)


@pytest.mark.parametrize("comes", [True, False])
def test_a_message_that_was_just_acknowledged_was_missing_and_the_status_was_ok(
    records: list[Record], comes: bool
) -> None:
    memory, record = Ending(records), keyed(records[::-1])
    memory.end = record.commit_log_offset + record.store_size_bytes
    memory.built_offset = record.commit_log_offset
    waited = []

    def wait(past_offset: int, seconds: float) -> None:
        waited.append(past_offset)
        memory.built_offset = memory.end if comes else record.commit_log_offset

    memory.on_wait = wait
    # What comes at the first wait is found however long that takes on a busy machine.
    seconds = WAIT_SECONDS_MAX if comes else BUILDER_WAIT_SECONDS_DEFAULT
    with (
        contextlib.closing(FreshnessWaits(builder_wait_seconds=seconds)) as waits,
        serving(memory, waits=waits) as stubs,
    ):
        answer = stubs.admin.QueryMessage(by_key(record))
        by_id = v2.ListMessageRequest(topic=v2.Resource(name=record.topic))
        by_id.message_id = MemoryShard(records).get(record.commit_log_offset, _Forever()).offset_msg_id
        read = stubs.admin.QueryMessage(by_id)

    assert waited[0] == memory.end - 1
    if comes:
        assert places(answer)[0] == (record.queue_id, record.queue_offset)
    else:
        assert answer.status.code not in (v2.OK, v2.INTERNAL_SERVER_ERROR)
        assert "index of shard broker-a is built up to byte" in answer.status.message
    assert places(read) == [(record.queue_id, record.queue_offset)], "a record is read by its id without an index"


@pytest.mark.parametrize("method", ["QueryMessage", "QueryTimeSpan"])
def test_a_query_that_hangs_had_all_of_its_callers_time(records: list[Record], method: str) -> None:
    seconds = []

    class Timed(MemoryShard):
        def _called(self, name, deadline) -> None:
            seconds.append(deadline.remaining_seconds())
            super()._called(name, deadline)

    request = by_key(keyed(records))
    if method == "QueryTimeSpan":
        request = v2.QueryTimeSpanRequest(topics=[request.topic])
    with serving(Timed(records)) as stubs:
        getattr(stubs.admin, method)(request, timeout=1_000)

    assert 0 < seconds[0] < 900, "four fifths; gRPC rounds a long timeout up"
