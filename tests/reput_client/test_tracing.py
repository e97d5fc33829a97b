"""Traces that producers and consumers write: RocketMQ's format, limits, and that nothing waits for them or fails by them."""

import asyncio
import json
import pathlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import AppendResult, NewMessage
from reput_client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncTransactionProducer,
    BufferFullError,
    Consumer,
    ConsumerSettings,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullConsumerSettings,
    QueryClient,
    TraceKind,
    TraceOutcome,
    TransactionProducer,
    TransactionResolution,
    UnavailableError,
)
from reput_client import NewMessage as Sent
from reput_client.consuming.pulling.pull_consumer import PolledTraces
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.producing.futures import OnDelivery
from reput_client.producing.transactions import _TransactionCore
from reput_client.receipt import SendReceipt
from reput_client.tracing import (
    BODY_BYTES_MAX,
    DELAY,
    ENTRY_COUNT_MAX,
    HALF,
    KEYS_BYTES_MAX,
    NORMAL,
    PENDING_COUNT_MAX,
    ConsumeReturn,
    TraceWriter,
    message_type_of,
    store_host_of,
)
from store.format.message_trace import TraceEntry, decode_trace_body
from store.format.message_trace import TraceKind as Kind
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TRACES, KEY = "Traces", "7F0000010000000000000000000000AA"
ID = "7F00000100002A9F0000000000000010"
RECEIPT = SendReceipt(AppendResult(unique_key=KEY, offset_msg_id=ID))


class Posts(list[tuple[NewMessage, OnDelivery]]):
    """What a writer posts; each waits until it is answered."""

    def __call__(self, wire: bytes, told: OnDelivery) -> None:
        self.append((pb.AppendMessagesRequest.FromString(wire).messages[0], told))

    def answer(self) -> None:
        """The oldest one is stored."""
        self.answered = self.pop(0)
        self.answered[1](RECEIPT, None)


def entries_of(message: NewMessage, unique_key: str = KEY) -> list[TraceEntry]:
    found = decode_trace_body(message.body, unique_key, "", 10_000)
    assert (found.damaged_count, found.is_cut) == (0, False)
    return found.entries


def writer(post: Callable[..., object], now: list[int] | None = None) -> TraceWriter:
    clock = now or [1_000]
    return TraceWriter(post, TRACES, "group", lambda: clock[0])


def test_a_send_is_told_as_rocketmqs_client_tells_it() -> None:
    posts, now = Posts(), [1_000]
    told = writer(posts, now).watch("Orders", "TagA", ["k1", "k2"], 7, DELAY, None)
    now[0] = 1_012
    told(RECEIPT, None)
    ((message, _),) = posts
    assert (message.topic, list(message.keys)) == (TRACES, [KEY, "k1", "k2"])
    fields = f"Pub|1000|DefaultRegion|group|Orders|{KEY}|TagA|k1 k2|127.0.0.1:10911|7|12|3|{ID}|true"
    assert message.body == fields.replace("|", "\x01").encode() + b"\x02"
    recorded = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "traces.json").read_text())["5.5.0"]
    of_java = [bytes.fromhex(body).split(b"\x02") for body in recorded["bodies"]]
    (java,) = {entry.count(b"\x01") for body in of_java for entry in body if entry.startswith(b"Pub")}
    assert java == fields.count("|")


def test_a_consumption_is_told_as_rocketmqs_client_tells_it() -> None:
    posts, now = Posts(), [1_000]
    tracer = writer(posts, now)
    begin = tracer.began(KEY, ["k1"], 2)
    now[0] = 1_030
    tracer.ended(begin, KEY, ["k1"], ConsumeReturn.EXCEPTION)
    posts.answer()
    ((after, _),) = posts
    (before,), (end,) = entries_of(posts.answered[0]), entries_of(after)
    assert (before.kind, before.time_millis, before.group, before.retry_count) == (
        *(Kind.BEFORE_CONSUMING, 1_000, "group", 2),
    )
    assert (end.kind, end.time_millis, end.cost_millis, end.is_success, end.group) == (
        *(Kind.AFTER_CONSUMING, 1_030, 30, False, "group"),
    )
    assert (end.request_id, end.consume_return) == (before.request_id, 2)
    recorded = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "traces.json").read_text())["5.5.0"]
    of_java = [entry for body in recorded["bodies"] for entry in bytes.fromhex(body).split(b"\x02")]
    for kind, message in ((b"SubBefore", posts.answered[0]), (b"SubAfter", after)):
        assert {entry.count(b"\x01") for entry in of_java if entry.startswith(kind)} == {message.body.count(b"\x01")}


def test_a_verdict_is_told_as_rocketmqs_client_tells_it() -> None:
    posts = Posts()
    about = {"tags": "TagA", "keys": ["k1", "k2"], "store_host": "127.0.0.1:10911"}
    writer(posts).verdict("Orders", KEY, "ROLLBACK_MESSAGE", **about, is_from_check=True)
    ((message, _),) = posts
    assert list(message.keys) == [KEY, "k1", "k2"]
    recorded = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "traces.json").read_text())["5.5.0"]
    of_java = [entry for body in recorded["bodies"] for entry in bytes.fromhex(body).split(b"\x02")]
    (java,) = (each for each in of_java if each.startswith(b"EndT") and b"ROLLBACK" in each)
    fields = java.decode().split("\x01")
    fields[1:9] = ["1000", "DefaultRegion", "group", "Orders", KEY, "TagA", "k1 k2", "127.0.0.1:10911"]
    fields[10], fields[12] = KEY, "true"
    assert message.body == "\x01".join(fields).encode() + b"\x02"


def test_a_verdict_that_no_gateway_took_was_told_as_a_commit() -> None:
    posts, done = Posts(), []
    core: Any = object.__new__(_TransactionCore)
    core.target, core._tracer = "here", writer(posts)
    transport: Any = SimpleNamespace(call=lambda *call: done.append(call[-1]))
    question = v2.RecoverOrphanedTransactionCommand(transaction_id="id")
    for answer in (
        UnavailableError("away"),
        v2.EndTransactionResponse(status=v2.Status(code=v2.INVALID_TRANSACTION_ID)),
    ):
        core._tell(transport, question, TransactionResolution.COMMIT)
        done.pop()(answer)
    assert not posts
    core._tell(transport, question, TransactionResolution.COMMIT)
    assert not posts
    done.pop()(v2.EndTransactionResponse(status=v2.Status(code=v2.OK)))
    core._tell(transport, question, TransactionResolution.UNKNOWN)
    posts.answer()
    ((unknown, _),) = posts
    assert [each.body.split(b"\x01")[11] for each in (posts.answered[0], unknown)] == [b"COMMIT_MESSAGE", b"UNKNOW"]
    assert not done


def polled(number: int, queue_id: int = 0, **fields: Any) -> Message:
    """A message at a position of a queue of Orders; its unique key is KEY and the number."""
    made: Any = object.__new__(Message)
    values = {"topic": "Orders", "broker_name": "broker-a", "queue_id": queue_id, "queue_offset": number}
    values |= {"unique_key": f"{KEY}{number}", "keys": (), "reconsume_times": 0, "properties": {}, **fields}
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_polled_messages_are_told_when_it_is_known_how_they_ended() -> None:
    posts, now = Posts(), [1_000]
    told = PolledTraces(writer(posts, now))
    first, second, other = polled(0), polled(1, reconsume_times=2), polled(2, queue_id=1)
    told.began([first, second, other, polled(3, topic=TRACES), polled(4, unique_key="")])
    now[0] = 1_030
    told.ended(ConsumeReturn.FAILED, [second, polled(9)])
    assert told.polled_of(MessageQueue("Orders", "broker-a", 0)) == [first]
    told.ended(ConsumeReturn.SUCCESS)
    told.ended(ConsumeReturn.SUCCESS)
    bodies = []
    while posts:
        posts.answer()
        bodies.append(posts.answered[0].body)
    ends = {}
    for each in (first, second, other):
        before, after = decode_trace_body(b"".join(bodies), each.unique_key, "", 10).entries
        assert (before.kind, after.kind, before.request_id) == (
            *(Kind.BEFORE_CONSUMING, Kind.AFTER_CONSUMING, after.request_id),
        )
        ends[each.queue_offset] = (before.retry_count, after.is_success, after.consume_return, after.cost_millis)
    # The three of a poll share its time.
    assert ends == {0: (0, True, 0, 10), 1: (2, False, 4, 10), 2: (0, True, 0, 10)}
    assert b"".join(bodies).count(b"\x02") == 6


def test_traces_that_were_sent_back_made_traces_of_their_retries() -> None:
    """Each retry of a trace was told in a new trace, which may be sent back, too."""
    posts = Posts()
    told = PolledTraces(writer(posts))
    told.began([polled(0, topic="%RETRY%pullers", properties={"RETRY_TOPIC": TRACES})])
    told.ended(ConsumeReturn.SUCCESS)
    assert not posts
    told.began([polled(1, topic="%RETRY%pullers", properties={"RETRY_TOPIC": "Orders"})])
    assert posts


def test_entries_that_come_while_a_message_is_under_way_share_the_next_one() -> None:
    posts = Posts()
    tracer = writer(posts)
    for _ in range(ENTRY_COUNT_MAX + 3):
        tracer.began(KEY, [], 0)
    assert len(posts) == 1
    posts.answer()
    assert len(entries_of(posts[0][0])) == ENTRY_COUNT_MAX
    posts.answer()
    assert len(entries_of(posts[0][0])) == 2
    posts.answer()
    assert (len(posts), tracer.dropped_count) == (0, 0)


def test_what_there_is_no_room_for_is_dropped_and_counted() -> None:
    posts = Posts()
    tracer = writer(posts)
    for _ in range(PENDING_COUNT_MAX + 11):
        tracer.began(KEY, [], 0)
    assert (len(posts), tracer.dropped_count) == (1, 10)
    idle = writer(posts)
    idle.began("k" * BODY_BYTES_MAX, [], 0)
    assert (len(posts), idle.dropped_count) == (1, 1)


@pytest.mark.parametrize("error", [BufferFullError("no room"), ValueError("bad")])
def test_a_message_that_cannot_be_sent_fails_nothing_and_the_next_one_is_tried(error: Exception) -> None:
    posts: list[Any] = []

    def post(wire: bytes, told: OnDelivery) -> None:
        posts.append(told)
        if len(posts) == 1:
            raise error

    tracer = writer(post)
    outcomes: list[Any] = []
    tracer.watch("Orders", "", [], 1, NORMAL, lambda *outcome: outcomes.append(outcome))(RECEIPT, None)
    assert (outcomes, tracer.dropped_count) == ([(RECEIPT, None)], 1)
    tracer.began(KEY, [], 0)
    posts[1](None, UnavailableError("away"))
    assert (len(posts), tracer.dropped_count) == (2, 2)


def test_a_thread_that_could_not_be_started_for_traces_left_the_outcome_of_a_send_untold() -> None:
    """As near the limit of threads, or while the interpreter ends."""

    def post(wire: bytes, told: OnDelivery) -> None:
        raise RuntimeError("can't start new thread")

    tracer = writer(post)
    outcomes: list[Any] = []
    tracer.watch("Orders", "", [], 1, NORMAL, lambda *outcome: outcomes.append(outcome))(RECEIPT, None)
    assert (outcomes, tracer.dropped_count) == ([(RECEIPT, None)], 1)
    told = tracer.watch_all([Sent("Orders", b"x")])
    told(lambda *outcome: outcomes.append(outcome), [RECEIPT], None)
    assert (len(outcomes), tracer.dropped_count) == (2, 2)


def test_a_batch_whose_body_was_released_before_its_answer_was_never_settled() -> None:
    posts, outcomes, keys = Posts(), [], ["k1"]
    with memoryview(b"hello") as body:
        told = writer(posts).watch_all([Sent("Orders", body, keys)])
    keys.clear()
    told(lambda *outcome: outcomes.append(outcome), [RECEIPT], None)
    assert outcomes == [([RECEIPT], None)]
    ((message, _),) = posts
    assert list(message.keys) == [KEY, "k1"]
    assert message.body.split(b"\x01")[7:10] == [b"k1", b"127.0.0.1:10911", b"5"]


def test_a_send_that_failed_and_a_send_of_traces_are_not_told() -> None:
    posts, outcomes = Posts(), []
    tracer = writer(posts)
    error = UnavailableError("away")
    tracer.watch("Orders", "", [], 1, NORMAL, lambda *outcome: outcomes.append(outcome))(None, error)
    tracer.watch(TRACES, "", [], 1, NORMAL, None)(RECEIPT, None)
    assert (outcomes, posts) == ([(None, error)], [])


def test_keys_fit_into_the_properties_of_a_message_and_the_unique_key_stays() -> None:
    posts = Posts()
    tracer = writer(posts)
    tracer.began("first", [], 0)
    tracer.began(KEY, ["k" * KEYS_BYTES_MAX], 0)
    for number in range(3):
        tracer.began(f"{number}" * (KEYS_BYTES_MAX // 2 - 1), [], 0)
    posts.answer()
    seen = []
    while posts:
        seen.append(list(posts[0][0].keys))
        assert sum(len(key) + 1 for key in seen[-1]) <= KEYS_BYTES_MAX
        posts.answer()
    assert [key[0] for keys in seen for key in keys] == ["7", "0", "1", "2"]


def test_separators_inside_texts_damage_no_entry() -> None:
    posts = Posts()
    tracer = writer(posts)
    tracer.sent("Orders", "a\x01b", ["k\x02"], 1, NORMAL, 1, 1, RECEIPT)
    (entry,) = entries_of(posts[0][0])
    assert entry.topic == "Orders"


def test_close_sends_what_waits_and_takes_nothing_more() -> None:
    posts = Posts()
    tracer = writer(posts)
    for _ in range(ENTRY_COUNT_MAX + 3):
        tracer.began(KEY, [], 0)
    tracer.close()
    assert [len(entries_of(message)) for message, _ in posts] == [1, ENTRY_COUNT_MAX, 2]
    tracer.began(KEY, [], 0)
    for _ in range(3):
        posts.answer()
    assert (len(posts), tracer.dropped_count) == (0, 1)


def test_the_type_of_a_message_and_the_host_in_its_id_are_rocketmqs() -> None:
    assert [message_type_of(None, None, 0), message_type_of(None, None, 3)] == [NORMAL, DELAY]
    assert message_type_of({"TIMER_DELAY_MS": "5"}, None, 0) == DELAY
    assert message_type_of({"TRAN_MSG": "true"}, None, 0) == HALF
    assert store_host_of("20010DB800000000000000000000000100002A9F0000000000000010") == "[2001:db8::1]:10911"
    assert [store_host_of(text) for text in ("", "zz", "00")] == ["", "", ""]


SETTINGS = {
    "REPUT_SCHEDULE_TRANSACTION_TIMEOUT_SECONDS": "0.5",
    "REPUT_SCHEDULE_TRANSACTION_CHECK_INTERVAL_SECONDS": "0.5",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("tracing") / "store", settings=SETTINGS) as running:
        yield running


def told_of(
    stack: HostedStack, topic: str, unique_key: str, count: int
) -> list[tuple[TraceKind, TraceOutcome, str, int]]:
    """What a track tells of a message, once it is so many events with their ends."""
    seen: list[Any] = []
    with QueryClient(stack.addresses["gateway"]) as client:

        def is_told() -> bool:
            traces = client.track(topic=topic, unique_key=unique_key, with_traces=True).traces
            assert traces is not None
            assert (traces.damaged_count, traces.problem) == (0, "")
            seen[:] = traces.events
            whole = [each for each in seen if each.outcome is not TraceOutcome.NOT_TOLD]
            return len(whole) == count

        wait_until(is_told, lambda: seen)
    return [(each.kind, each.outcome, each.group, each.retry_count) for each in seen]


SEND = (TraceKind.SEND, TraceOutcome.SUCCESS, "makers", 0)


def test_a_producer_and_a_consumer_with_tracing_tell_a_messages_life(stack: HostedStack) -> None:
    at = stack.addresses["gateway"]
    with Producer(at, trace=True, producer_group="makers") as producer:
        receipt = producer.send_and_wait("Lives", b"hello", keys=["life-1"])
    failures = []

    def handle(message: Any) -> None:
        if not failures:
            failures.append(message)
            raise ValueError("not yet")
        consumer.close()

    settings = ConsumerSettings(trace=True, backoff_seconds=[0.1])
    consumer = Consumer(at, "handlers", {"Lives": "*"}, settings=settings)
    consumer.run(handle, concurrency=1)
    consumer.close()
    assert told_of(stack, "Lives", receipt.unique_key, 3) == [
        SEND,
        (TraceKind.CONSUME, TraceOutcome.EXCEPTION, "handlers", 0),
        (TraceKind.CONSUME, TraceOutcome.SUCCESS, "handlers", 1),
    ]


def test_each_way_to_send_is_told(stack: HostedStack) -> None:
    with Producer(stack.addresses["gateway"], trace=True, producer_group="makers", trace_topic=TRACES) as producer:
        one = producer.send("Ways", b"1", keys=iter(["way-1"])).result(WAIT_SECONDS_MAX)
        two = [Sent("Ways", b"2"), Sent("Ways", b"3", keys=iter(["way-3"]))]
        batch = producer.send_batch(two).result(WAIT_SECONDS_MAX)
        producer.send_oneway("Ways", b"4", keys=["way-4"])
    with QueryClient(stack.addresses["gateway"]) as client:
        (oneway,) = client.by_key("Ways", "way-4")
        for way in ("way-1", "way-3"):
            wait_until(
                lambda way=way: list(client.by_key(TRACES, way)), "keys of an iterator are keys of the trace, too"
            )
        for key in (one.unique_key, *(each.unique_key for each in batch), oneway.unique_key):

            def is_told(key: str = key) -> bool:
                asked = client.track(topic="Ways", unique_key=key, with_traces=True, trace_topic=TRACES)
                return [(each.kind, each.group) for each in asked.traces.events] == [(TraceKind.SEND, "makers")]

            wait_until(is_told, key)


def test_clients_of_an_event_loop_tell_the_same(stack: HostedStack) -> None:
    at = stack.addresses["gateway"]

    async def live() -> str:
        async with AsyncProducer(at, trace=True, producer_group="makers") as producer:
            (receipt,) = await (await producer.send_batch([Sent("Loops", b"hello")]))
        settings = ConsumerSettings(trace=True)
        async with AsyncConsumer(at, "handlers", {"Loops": "*"}, settings=settings) as consumer:
            delivery = await consumer.take(WAIT_SECONDS_MAX)
            await delivery.ack()
        return receipt.unique_key

    unique_key = asyncio.run(live())
    assert told_of(stack, "Loops", unique_key, 2) == [SEND, (TraceKind.CONSUME, TraceOutcome.SUCCESS, "handlers", 0)]


def verdicts_of(stack: HostedStack, topic: str, unique_key: str) -> list[tuple[str, str, bool]]:
    """Group, verdict and whether it answers a check, of each verdict that is told, once there is one; a send comes before."""
    seen: list[Any] = []
    with QueryClient(stack.addresses["gateway"]) as client:

        def is_told() -> bool:
            traces = client.track(topic=topic, unique_key=unique_key, with_traces=True).traces
            assert (traces.damaged_count, traces.problem, traces.topic) == (0, "", "RMQ_SYS_TRACE_TOPIC")
            seen[:] = traces.events
            return len(seen) > 1

        wait_until(is_told, lambda: seen)
    assert [each.kind for each in seen] == [TraceKind.SEND, *[TraceKind.END_TRANSACTION] * (len(seen) - 1)]
    return [(each.group, each.verdict, each.is_from_check) for each in seen[1:]]


def test_a_transaction_producer_tells_of_half_messages_and_verdicts(stack: HostedStack) -> None:
    with TransactionProducer(stack.addresses["gateway"], trace=True, producer_group="makers") as producer:
        with producer.transaction(Sent("Verdicts", b"kept", iter(["verdict-1"]))) as kept:
            pass
        dropped = producer.send_half(Sent("Verdicts", b"dropped"))
        dropped.rollback()
        by_id = producer.send_half(Sent("Verdicts", b"by id"))
        producer.end("Verdicts", by_id.receipt.transaction_id, TransactionResolution.COMMIT)
        (plain,) = producer.append([Sent("Verdicts", b"plain", iter(["plain-1"]))])
    for half, verdict in ((kept, "COMMIT_MESSAGE"), (dropped, "ROLLBACK_MESSAGE"), (by_id, "COMMIT_MESSAGE")):
        assert verdicts_of(stack, "Verdicts", half.receipt.unique_key) == [("makers", verdict, False)]
    assert told_of(stack, "Verdicts", plain.unique_key, 1) == [SEND]
    with QueryClient(stack.addresses["gateway"]) as client:
        for key, kinds in (("verdict-1", [b"EndTransaction", b"Pub"]), ("plain-1", [b"Pub"])):
            bodies = b"".join(each.body for each in client.by_key("RMQ_SYS_TRACE_TOPIC", key))
            entries = [entry.split(b"\x01") for entry in bodies.split(b"\x02")]
            told = sorted(entry[0] for entry in entries if key.encode() in entry)
            assert told == kinds, "keys of an iterator are told each time"


def test_the_answer_of_a_checker_is_told_as_such(stack: HostedStack) -> None:
    def check(message: ReceivedMessage) -> TransactionResolution:
        return TransactionResolution.COMMIT

    at = stack.addresses["gateway"]
    with TransactionProducer(at, topics=["Hangs"], checker=check, trace=True, producer_group="makers") as producer:
        half = producer.send_half(Sent("Hangs", b"hangs"))
        told = verdicts_of(stack, "Hangs", half.receipt.unique_key)
    assert told[0] == ("makers", "COMMIT_MESSAGE", True)


def test_a_transaction_producer_of_an_event_loop_tells_the_same(stack: HostedStack) -> None:
    async def live() -> str:
        async with AsyncTransactionProducer(
            stack.addresses["gateway"], trace=True, producer_group="makers"
        ) as producer:
            half = await producer.send_half(Sent("LoopVerdicts", b"hello"))
            await half.commit()
        return half.receipt.unique_key

    assert verdicts_of(stack, "LoopVerdicts", asyncio.run(live())) == [("makers", "COMMIT_MESSAGE", False)]


def test_a_pull_consumer_with_tracing_tells_how_each_polled_message_ended(stack: HostedStack) -> None:
    at = stack.addresses["gateway"]
    with Producer(at) as producer:
        kept, back, broken = (
            producer.send_and_wait("Pulls", name, queue_id=0) for name in (b"kept", b"back", b"broken")
        )
    settings = PullConsumerSettings(members_seconds=0.2, trace=True)

    def next_of(consumer: PullConsumer) -> Message:
        seen: list[Message] = []
        wait_until(lambda: seen.extend(consumer.poll(1, timeout_seconds=0.5)) or seen, "a message comes")
        return seen[0]

    def break_at(consumer: PullConsumer) -> None:
        assert next_of(consumer).body == b"broken"
        raise KeyError("program")

    def work() -> None:
        with PullConsumer(at, "pullers", {"Pulls": "*"}, settings=settings) as consumer:
            assert next_of(consumer).body == b"kept"
            consumer.commit()
            consumer.send_back([next_of(consumer)], -1)
            break_at(consumer)

    with pytest.raises(KeyError):
        work()
    ends = (TraceOutcome.SUCCESS, TraceOutcome.FAILED, TraceOutcome.EXCEPTION)
    for receipt, end in zip((kept, back, broken), ends, strict=True):
        assert told_of(stack, "Pulls", receipt.unique_key, 1) == [(TraceKind.CONSUME, end, "pullers", 0)]


def test_a_consumer_of_the_trace_topic_with_tracing_made_traces_of_its_traces_for_ever(stack: HostedStack) -> None:
    at = stack.addresses["gateway"]
    with Producer(at) as producer:
        producer.send_and_wait("Fed", b"hello", keys=["fed-1"])
    settings = ConsumerSettings(trace=True, trace_topic="Fed")
    with Consumer(at, "readers-of-traces", {"Fed": "*"}, settings=settings) as consumer:
        delivery = consumer.take(WAIT_SECONDS_MAX)
        assert delivery is not None
        delivery.ack().result(WAIT_SECONDS_MAX)
    with QueryClient(at) as client:
        assert [each.body for each in client.by_key("Fed", "fed-1")] == [b"hello"]


def test_traces_that_nobody_takes_fail_no_send(stack: HostedStack) -> None:
    with Producer(stack.addresses["gateway"], trace=True, trace_topic="no topic!") as producer:
        receipts = [producer.send_and_wait("Alone", b"hello") for _ in range(3)]
    assert len({receipt.offset_msg_id for receipt in receipts}) == 3
