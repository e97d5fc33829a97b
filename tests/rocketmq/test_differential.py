"""Random messages through the real RocketMQ and through ours; the same questions to both, each difference by its name.

    theirs     RocketMQ: its producer sends, its admin and pull clients ask
    on_theirs  ours, read-only on the store that it wrote: the same bytes, so also the same times and ids
    ours       ours, to which the same messages were appended in the same order

A difference is explained when RocketMQ's own rules with some of the bugs of `BUGS` give just what it answered, and without them
what ours answered. Any other one fails.
"""

import base64
import dataclasses
import itertools
import pathlib
import random
from collections.abc import Sequence

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format.message_id import UniqueKeyGenerator, encode_offset_msg_id
from store.format.record import Record, decode_record
from tests.rocketmq import real_broker
from tests.rocketmq.rocketmq_rules import BUGS, LONG_MAX, Answer, Question, explanation, rocketmqs_rules, text
from tests.support.fixture_stores import walk_frames
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

SEED = 20_261_122
MESSAGE_COUNT = 400
TOPICS = ("AaTopic", "BBTopic", "plain", "with-dash_and_underscore")
QUEUE_COUNT = 4
# Few of them, so that many messages share one; pairs with one hash, in one topic and across two.
KEYS = ("Aa", "BB", "AaAa", "AaBB", "BBAa", "BBBB", "k1", "k2", "order-7", "订单", "ключ", "🔑", "a#b", "x" * 200, "ß")


@dataclasses.dataclass(frozen=True)
class Sent:
    """A message as both are given it."""

    topic: str
    queue_id: int
    tags: str
    keys: tuple[str, ...]
    unique_key: str
    body: bytes


def make_messages(rng: random.Random) -> list[Sent]:
    """Messages with few topics and keys; every tenth has the unique key of one before it in its topic."""
    generator = UniqueKeyGenerator("127.0.0.1", 4242, class_loader_hash=1)
    messages: list[Sent] = []
    for number in range(MESSAGE_COUNT):
        topic = rng.choice(TOPICS)
        keys = tuple(rng.choice(KEYS) for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))))
        before = [message.unique_key for message in messages if message.topic == topic]
        unique_key = rng.choice(before) if before and rng.random() < 0.1 else generator.create()
        # Above 4 KiB the producer of RocketMQ compresses; no body is empty for either.
        body = b"%d " % number + rng.randbytes(rng.choice((0, 1, 40, 400, 3000))) + b"x" * rng.choice((0, 0, 0, 6000))
        messages.append(
            Sent(topic, rng.randrange(QUEUE_COUNT), rng.choice(("", "TagA", "标签")), keys, unique_key, body)
        )
    return messages


def make_questions(rng: random.Random, records: Sequence[Record]) -> list[Question]:
    """Of each kind, about what is there and what is not."""
    questions = []
    times = sorted(record.store_time_millis for record in records)
    for topic, key in itertools.product(TOPICS, (*KEYS, "nobody", "Aa Aa", "aa")):
        questions.append(Question("key", topic, key, count=64))
        questions.append(Question("key", topic, key, count=rng.choice((1, 2, 3, 7, 100))))
        for _ in range(2):
            begin, end = sorted(rng.choice(times) + rng.choice((-1000, -999, -1, 0, 1, 999, 1000)) for _ in range(2))
            questions.append(Question("key", topic, key, count=rng.choice((5, 64)), begin=begin, end=end))
    for record in rng.sample(list(records), 60):
        questions.append(Question("key", record.topic, record.unique_key))
        questions.append(
            Question("id", record.topic, encode_offset_msg_id(record.store_host, record.commit_log_offset))
        )
        questions.append(Question("unique_key", record.topic, record.unique_key))
        questions.append(Question("offset", record.topic, queue_id=record.queue_id, number=record.queue_offset))
        for difference in (-1, 0, 1):
            at = record.store_time_millis + difference
            questions.append(Question("time", record.topic, queue_id=record.queue_id, number=at))
    for topic, queue_id in itertools.product(TOPICS, range(QUEUE_COUNT)):
        length = sum((record.topic, record.queue_id) == (topic, queue_id) for record in records)
        questions.append(Question("offset", topic, queue_id=queue_id, number=length))
        for at in (0, times[0] - 1, times[-1] + 1):
            questions.append(Question("time", topic, queue_id=queue_id, number=at))
    return questions


# -- RocketMQ


def drive(broker: real_broker.RealRocketMQ, work: pathlib.Path, verb: str, lines: list[str]) -> list[list[str]]:
    """What the driver prints, a row of fields a line."""
    file = work / f"{verb}.tsv"
    file.write_text("\n".join(lines) + "\n")
    said = broker.clients().run("Differential", verb, broker.namesrv, f"127.0.0.1:{broker.broker_port}", str(file))
    rows = [line.split("\t") for line in said.splitlines() if line.startswith(("SENT\t", "ANSWER\t"))]
    assert len(rows) == len(lines), said[-4000:]
    return rows


# -- ours


def timestamp(time_millis: int) -> Timestamp:
    return Timestamp(seconds=time_millis // 1000, nanos=time_millis % 1000 * 1_000_000)


def ask_ours(stack: HostedStack, question: Question) -> Answer:
    """The same question to our gateway; offsets are those of the log that it serves."""
    gateway = stack.gateway
    if question.kind == "key":
        request = pb.QueryMessageByKeyRequest(topic=question.topic, key=question.key, page_size=question.count)
        if question.begin:
            request.begin_time.CopyFrom(timestamp(question.begin))
        if question.end != LONG_MAX:
            request.end_time.CopyFrom(timestamp(question.end))
        return _found(gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX).messages)
    if question.kind == "id":
        request = pb.QueryMessageByIdRequest(offset_msg_id=question.key, topic=question.topic)
        try:
            return _found([gateway.QueryMessageById(request, timeout=WAIT_SECONDS_MAX).message])
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return Answer()
    if question.kind == "unique_key":
        request = pb.QueryMessageByUniqueKeyRequest(topic=question.topic, unique_key=question.key)
        return _found(gateway.QueryMessageByUniqueKey(request, timeout=WAIT_SECONDS_MAX).messages)
    if question.kind == "offset":
        request = pb.QueryMessageByOffsetRequest(
            topic=question.topic, queue_id=question.queue_id, queue_offset=question.number, max_messages=1
        )
        return _found(gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX).messages)
    request = pb.SearchOffsetRequest(
        topic=question.topic, queue_id=question.queue_id, time=timestamp(question.number), boundary=pb.BOUNDARY_LOWER
    )
    return Answer(queue_offset=gateway.SearchOffset(request, timeout=WAIT_SECONDS_MAX).queue_offset)


def _found(messages: Sequence[message_pb2.StoredMessage]) -> Answer:
    return Answer(tuple(message.commit_log_offset for message in messages))


def append(stack: HostedStack, messages: Sequence[Sent]) -> None:
    for begin in range(0, len(messages), 100):
        batch = [
            new_message(
                sent.topic, sent.body, queue_id=sent.queue_id, tags=sent.tags, keys=sent.keys, unique_key=sent.unique_key
            )
            for sent in messages[begin : begin + 100]
        ]  # fmt: skip
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=batch), timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()


# -- the comparison


@dataclasses.dataclass(frozen=True)
class Judged:
    """All that both answered.

    Attributes:
        sent: the messages.
        records: RocketMQ's log, oldest first, without its own topics.
        questions: what was asked.
        theirs: RocketMQ's answers.
        store: its store root, after a clean stop.
    """

    sent: list[Sent]
    records: list[Record]
    questions: list[Question]
    theirs: list[Answer]
    store: pathlib.Path


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    work = tmp_path_factory.mktemp("differential")
    rng = random.Random(SEED)
    sent = make_messages(rng)
    sizes = {"mappedFileSizeCommitLog": 64 << 20, "maxHashSlotNum": 1000, "maxIndexNum": 10_000}
    with real_broker.real_rocketmq(work / "store", work / "rocketmq", **sizes) as broker:
        lines = [
            "\t".join((text(m.topic), str(m.queue_id), text(m.tags), text(" ".join(m.keys)), text(m.unique_key),
                       base64.b64encode(m.body).decode()))
            for m in sent
        ]  # fmt: skip
        receipts = drive(broker, work, "send", lines)
        everything = [decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(work / "store")]
        records = [record for record in everything if record.topic in TOPICS]
        assert [(r.queue_id, r.queue_offset) for r in records] == [(int(row[1]), int(row[2])) for row in receipts]
        assert [(r.topic, r.unique_key, r.keys) for r in records] == [(m.topic, m.unique_key, m.keys) for m in sent]
        questions = make_questions(rng, records)
        theirs = [Answer.of_row(row) for row in drive(broker, work, "ask", [q.line() for q in questions])]
    return Judged(sent, records, questions, theirs, work / "store")


def differences(judged: Judged, ours: Sequence[Answer]) -> tuple[dict[str, int], list[str]]:
    """How often each bug explains one, and those that none does."""
    named: dict[str, int] = {}
    unexplained: list[str] = []
    for question, theirs, mine in zip(judged.questions, judged.theirs, ours, strict=True):
        if (sorted(theirs.found), theirs.queue_offset) == (sorted(mine.found), mine.queue_offset):
            continue
        bugs = explanation(question, judged.records, theirs, mine.found)
        if bugs is None:
            unexplained.append(f"{question}: RocketMQ {theirs}, ours {mine}")
        for bug in bugs or ():
            named[bug] = named.get(bug, 0) + 1
    return named, unexplained


def test_on_the_store_that_rocketmq_wrote_each_difference_has_a_name(judged: Judged) -> None:
    with hosted_stack(judged.store, read_only=True) as stack:
        stack.wait_until_built()
        ours = [ask_ours(stack, question) for question in judged.questions]
    for question, mine in zip(judged.questions, ours, strict=True):
        if question.kind == "key":
            assert list(mine.found) == rocketmqs_rules(question, judged.records, frozenset()), question
    named, unexplained = differences(judged, ours)
    assert unexplained == []
    print("differences by name:", {name: (count, *BUGS[name]) for name, count in sorted(named.items())})
    assert {"budget", "seconds", "twice", "one copy"} <= named.keys() <= BUGS.keys()


def test_what_was_appended_to_ours_is_found_as_what_was_sent_to_rocketmq(
    judged: Judged, tmp_path: pathlib.Path
) -> None:
    """Times and ids differ between the two; all else is the same question."""
    with hosted_stack(tmp_path / "store") as stack:
        append(stack, judged.sent)
        log = [decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(tmp_path / "store")]
        their_offset = {
            mine.commit_log_offset: theirs.commit_log_offset for mine, theirs in zip(log, judged.records, strict=True)
        }
        asked = [
            (question, theirs)
            for question, theirs in zip(judged.questions, judged.theirs, strict=True)
            if question.kind in ("unique_key", "offset") or (question.kind == "key" and not question.begin)
        ]
        assert len(asked) > 200
        ours = []
        for question, _ in asked:
            found = ask_ours(stack, question).found
            ours.append(Answer(tuple(their_offset[offset] for offset in found)))
    only = dataclasses.replace(judged, questions=[q for q, _ in asked], theirs=[theirs for _, theirs in asked])
    named, unexplained = differences(only, ours)
    assert unexplained == []
    assert named.keys() <= BUGS.keys() - {"seconds"}
    for mine, theirs, sent in zip(log, judged.records, judged.sent, strict=True):
        assert (mine.topic, mine.queue_id, mine.queue_offset) == (theirs.topic, theirs.queue_id, theirs.queue_offset)
        assert (mine.keys, mine.tags, mine.unique_key) == (theirs.keys, theirs.tags, theirs.unique_key)
        assert mine.body == sent.body
