"""A query of a shard with replicas: what each answers, what the answer says, and that nothing of a leader is missed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import CREATE_TOPIC, topics_of
from gateway.ports.shards import FanOut, Shards
from gateway.queries.freshness import FreshnessWaits
from gateway.queries.page import PageTokens
from gateway.reput.servicer import GatewayServicer
from gateway.shards.replica_choice import Choice, ReadFrom, ReplicaFacts
from gateway.shards.replica_reads import ReplicaReads, ShardReading, Source
from gateway.shards.targets import ShardTargets
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import DeadlineExceededError, InvalidArgumentError, ServiceUnavailableError, StoreError
from store.format.freshness_token import encode_freshness_token
from store.format.record import Record
from tests.gateway.memory_shard import with_log_end
from tests.gateway.queries.test_arrival import BROKER, Building, LogEnd
from tests.gateway.reput.test_topics import MemoryTopicAdmin

COMPLETE, TRUNCATED, PARTIAL = (
    message_pb2.COMPLETENESS_COMPLETE,
    message_pb2.COMPLETENESS_TRUNCATED,
    message_pb2.COMPLETENESS_PARTIAL,
)
NOW = 1_000.0


class Context:
    """Of a call with ten seconds left."""

    def time_remaining(self) -> float:
        return 10.0


class Opened:
    """A replica that is open."""

    delivering = None

    def __init__(self, shard: object) -> None:
        self.shard = shard

    def close(self) -> None:
        pass


class Installation:
    """A shard of three replicas with the records of the fixture; r1 leads, the others may lack some."""

    def __init__(self, records: list[Record], fan_out: FanOut) -> None:
        self.records = records
        self.leader = Building(records)
        self.end = LogEnd(self.leader._end, has_files=True)
        self.replicas = {name: Building(records) for name in ("r2", "r3")}
        self.facts = {name: ReplicaFacts(False, self.end.end, self.end.end, NOW - 0.5) for name in self.replicas}
        self.facts["r1"] = ReplicaFacts(True, self.end.end)
        self.is_led = True
        targets = [ShardTargets(BROKER, name, name, name, replica=name) for name in ("r1", "r2", "r3")]
        shard = with_log_end(self.leader.shard(BROKER), self.end)
        reads = ReplicaReads(
            Shards([shard], fan_out),
            lambda _: (self.is_led, targets),
            lambda one: self.facts.get(one.replica),
            lambda one: Opened(self.replicas[one.replica].shard(BROKER)),
            clock=lambda: NOW,
        )
        self.reads = reads
        self.servicer = GatewayServicer(
            reads, PageTokens("a secret"), waits=FreshnessWaits(builder_wait_seconds=0.0), reads=reads
        )

    def lack(self, name: str, count: int, age: float = 5.0) -> None:
        """A replica lacks the last records, and has not heard of them for so long."""
        kept = self.records[:-count]
        end = kept[-1].commit_log_offset + kept[-1].store_size_bytes
        self.replicas[name] = Building(kept)
        self.facts[name] = ReplicaFacts(False, end, end, NOW - age)

    def read(self, read_from: int, **fields: object) -> pb.QueryMessageByKeyResponse:
        newest = self.records[-1]
        request = pb.QueryMessageByKeyRequest(topic=newest.topic, key=newest.keys[0], page_size=1_000, **fields)
        request.read.read_from = read_from
        answer: pb.QueryMessageByKeyResponse = self.servicer.QueryMessageByKey(request, Context())
        return answer

    def expected(self, records: list[Record]) -> list[int]:
        """The offsets of the records with the newest one's key, by brute force."""
        newest = self.records[-1]
        return [
            one.commit_log_offset
            for one in reversed(records)
            if one.topic == newest.topic and newest.keys[0] in one.keys
        ]


@pytest.fixture
def installation(records: list[Record], fan_out: FanOut) -> Iterator[Installation]:
    with_keys = [number for number, record in enumerate(records) if record.keys]
    one = Installation(records[: with_keys[-1] + 1], fan_out)
    yield one
    one.servicer.close()


def offsets(answer: pb.QueryMessageByKeyResponse) -> list[int]:
    return [message.commit_log_offset for message in answer.messages]


@contextmanager
def failing(shard: Building, error: StoreError, *names: str) -> Iterator[None]:
    shard.failures.update(dict.fromkeys(names or ("search", "get_many", "get", "units"), error))
    yield


def test_without_a_choice_only_the_leader_is_asked(installation: Installation) -> None:
    answer = installation.read(pb.READ_FROM_UNSPECIFIED)
    assert (offsets(answer), answer.completeness) == (installation.expected(installation.records), COMPLETE)
    assert [one.calls for one in installation.replicas.values()] == [[], []]


def test_a_replica_that_has_everything_gives_a_complete_answer(installation: Installation) -> None:
    answer = installation.read(pb.READ_FROM_REPLICA)
    assert (offsets(answer), answer.completeness) == (installation.expected(installation.records), COMPLETE)
    assert list(answer.shards[0].replicas) == ["r2"]
    assert not answer.shards[0].HasField("staleness")
    assert "search" not in installation.leader.calls
    assert "offset" in installation.end.calls


def test_a_replica_that_lags_says_so_and_is_never_called_complete(installation: Installation) -> None:
    installation.lack("r2", 1, age=2.0)
    installation.lack("r3", 1, age=3.0)
    answer = installation.read(pb.READ_FROM_REPLICA)
    assert offsets(answer) == installation.expected(installation.records)[1:]
    (row,) = answer.shards
    assert answer.completeness == PARTIAL
    assert (list(row.replicas), row.log_end_offset) == (["r2"], installation.end.end)
    assert 2.0 <= row.staleness.ToMicroseconds() / 1e6 < 2.1


def test_a_replica_that_is_too_stale_is_not_asked_beside_a_leader(installation: Installation) -> None:
    installation.lack("r2", 1, age=60.0)
    installation.lack("r3", 1, age=3_600.0)
    answer = installation.read(pb.READ_FROM_REPLICA)
    assert (offsets(answer), answer.completeness) == (installation.expected(installation.records), COMPLETE)
    assert not answer.shards[0].replicas


@pytest.mark.parametrize(
    "error", [ServiceUnavailableError("away"), DeadlineExceededError("hangs")], ids=["away", "hangs"]
)
def test_what_a_replica_does_not_answer_is_asked_of_the_leader(installation: Installation, error: StoreError) -> None:
    with failing(installation.replicas["r2"], error):
        answer = installation.read(pb.READ_FROM_REPLICA)
    assert (offsets(answer), answer.completeness) == (installation.expected(installation.records), COMPLETE)
    assert not answer.shards[0].replicas


@pytest.mark.parametrize("read_from", [pb.READ_FROM_ANY, pb.READ_FROM_REPLICA])
def test_without_a_leader_the_freshest_replica_answers_partially_and_says_how_stale_it_may_be(
    installation: Installation, read_from: int
) -> None:
    installation.lack("r2", 1, age=40.0)
    installation.is_led = False
    installation.facts["r1"] = None  # type: ignore[assignment]
    with failing(installation.leader, ServiceUnavailableError("away")):
        answer = installation.read(read_from)
    assert offsets(answer) == installation.expected(installation.records)
    (row,) = answer.shards
    assert (answer.completeness, list(row.replicas)) == (PARTIAL, ["r3"])
    assert 0.5 <= row.staleness.ToMicroseconds() / 1e6 < 0.6
    assert "No leader" in row.error.message
    assert not installation.leader.calls


def test_a_leader_that_does_not_answer_is_followed_by_a_replica(installation: Installation) -> None:
    installation.end.error = ServiceUnavailableError("away")
    with failing(installation.leader, ServiceUnavailableError("away"), "search", "get_many"):
        answer = installation.read(pb.READ_FROM_ANY)
    assert offsets(answer) == installation.expected(installation.records)
    assert (answer.completeness, list(answer.shards[0].replicas)) == (PARTIAL, ["r2"])
    assert answer.shards[0].HasField("staleness")


@pytest.mark.parametrize("read_from", [pb.READ_FROM_ANY, pb.READ_FROM_REPLICA])
def test_a_leader_that_was_killed_just_now_is_followed_by_replicas_that_were_not_known_to_be_fresh(
    installation: Installation, read_from: int
) -> None:
    for name in installation.replicas:
        installation.facts[name] = ReplicaFacts(False, installation.end.end, installation.end.end, None)
    installation.end.error = ServiceUnavailableError("away")
    away = ServiceUnavailableError("away")
    with failing(installation.leader, away, "search", "get_many"), failing(installation.replicas["r2"], away):
        answer = installation.read(read_from)
    assert offsets(answer) == installation.expected(installation.records)
    assert (answer.completeness, list(answer.shards[0].replicas)) == (PARTIAL, ["r3"])
    assert not answer.shards[0].HasField("staleness")


def test_a_record_that_the_leader_lacks_does_not_hide_the_others(installation: Installation) -> None:
    lost = installation.records[-1]
    kept = Building(installation.records[:-1])
    installation.leader.get_many = kept.get_many  # type: ignore[method-assign]
    by_leader = installation.read(pb.READ_FROM_LEADER)
    assert lost.commit_log_offset not in offsets(by_leader)
    assert offsets(installation.read(pb.READ_FROM_ANY)) == offsets(by_leader)


def test_a_token_without_a_leader_does_not_make_an_answer_complete(installation: Installation) -> None:
    installation.is_led = False
    installation.facts["r1"] = None  # type: ignore[assignment]
    token = encode_freshness_token(BROKER, installation.records[0].commit_log_offset)
    answer = installation.read(pb.READ_FROM_ANY, freshness_tokens=[token])
    assert answer.completeness == PARTIAL
    assert answer.shards[0].HasField("error")


def test_what_a_replica_does_not_find_without_a_leader_is_not_said_to_be_absent(installation: Installation) -> None:
    installation.is_led = False
    request = pb.QueryMessageByOffsetRequest(topic="no such topic")
    request.read.read_from = pb.READ_FROM_ANY
    with pytest.raises(ServiceUnavailableError, match="No leader"):
        installation.servicer.QueryMessageByOffset(request, Context())


def test_cold_records_are_read_from_a_replica_and_hot_ones_from_the_leader(installation: Installation) -> None:
    installation.facts["r1"] = ReplicaFacts(True, installation.end.end, in_memory_size_bytes=0)
    answer = installation.read(pb.READ_FROM_ANY)
    assert (offsets(answer), answer.completeness) == (installation.expected(installation.records), COMPLETE)
    assert installation.replicas["r2"].calls == ["get_many"]
    assert "search" in installation.leader.calls
    assert "get_many" not in installation.leader.calls
    assert not answer.shards[0].replicas  # a record is the same everywhere

    installation.facts["r1"] = ReplicaFacts(True, installation.end.end, in_memory_size_bytes=1 << 40)
    installation.read(pb.READ_FROM_ANY)
    assert installation.replicas["r2"].calls == ["get_many"]
    assert "get_many" in installation.leader.calls


def test_a_cold_record_that_a_replica_lacks_comes_from_the_leader(installation: Installation) -> None:
    installation.facts["r1"] = ReplicaFacts(True, installation.end.end, in_memory_size_bytes=0)
    kept = installation.records[-1:]
    installation.replicas["r2"] = Building(kept)
    answer = installation.read(pb.READ_FROM_ANY)
    assert (offsets(answer), answer.completeness) == (installation.expected(installation.records), COMPLETE)


@pytest.mark.parametrize(
    ("read_from", "seconds", "nanos", "field"),
    [
        (99, 0, 0, "read.read_from"),
        (-1, 0, 0, "read.read_from"),
        (pb.READ_FROM_ANY, -1, 0, "read.max_staleness"),
        (pb.READ_FROM_ANY, 0, -1, "read.max_staleness"),
        (pb.READ_FROM_ANY, 0, 1_000_000_000, "read.max_staleness"),
        (pb.READ_FROM_LEADER, 1 << 62, 0, "read.max_staleness"),
        (pb.READ_FROM_REPLICA, -(1 << 63), -(1 << 31), "read.max_staleness"),
    ],
)
def test_a_choice_that_means_nothing_is_refused_by_field(
    installation: Installation, read_from: int, seconds: int, nanos: int, field: str
) -> None:
    request = pb.QueryMessageByKeyRequest(topic="t", key="k")
    request.read.read_from = read_from  # type: ignore[assignment]
    if seconds or nanos:
        request.read.max_staleness.seconds = seconds
        request.read.max_staleness.nanos = nanos
    with pytest.raises(InvalidArgumentError) as raised:
        installation.servicer.QueryMessageByKey(request, Context())
    assert raised.value.metadata["field"] == field


def test_a_limit_of_the_caller_leaves_out_what_is_staler_also_without_a_leader(installation: Installation) -> None:
    installation.is_led = False
    request = pb.QueryMessageByKeyRequest(topic=installation.records[-1].topic, key=installation.records[-1].keys[0])
    request.read.read_from = pb.READ_FROM_ANY
    request.read.max_staleness.FromMilliseconds(400)
    with failing(installation.leader, ServiceUnavailableError("away")), pytest.raises(ServiceUnavailableError):
        installation.servicer.QueryMessageByKey(request, Context())
    request.read.max_staleness.FromMilliseconds(600)
    assert installation.servicer.QueryMessageByKey(request, Context()).completeness == PARTIAL


def test_deadlines_of_replicas_leave_time_for_the_leader(installation: Installation) -> None:
    given: list[float] = []

    class Slow(Building):
        def search(self, *arguments, **named):
            given.append(named["deadline"].at_seconds)
            raise DeadlineExceededError("hangs")

    installation.replicas["r2"] = Slow(installation.records)
    before = Deadline.after(0).at_seconds
    answer = installation.read(pb.READ_FROM_REPLICA)
    assert answer.completeness == COMPLETE
    assert len(given) == 1
    assert given[0] - before <= 1.5


def listed(installation: Installation, read_from: int) -> tuple[pb.ListTopicsResponse, dict[str, int]]:
    """The answer of ListTopics, and how far its queues reach, all together, by topic."""
    request = pb.ListTopicsRequest(page_size=1_000)
    request.read.read_from = read_from
    answer = installation.servicer.ListTopics(request, Context())
    return answer, {row.topic: sum(queue.max_offset for queue in row.queues) for row in answer.topics}


def counted(records: list[Record]) -> dict[str, int]:
    """How many messages each topic has, by brute force: the fixture's queues begin at 0."""
    return {topic: sum(one.topic == topic for one in records) for topic in {one.topic for one in records}}


@pytest.mark.parametrize("read_from", [pb.READ_FROM_ANY, pb.READ_FROM_REPLICA])
def test_topics_are_listed_by_the_leader_while_it_answers(installation: Installation, read_from: int) -> None:
    installation.lack("r2", 1)
    answer, found = listed(installation, read_from)
    assert (found, answer.completeness) == (counted(installation.records), COMPLETE)
    assert not answer.shards[0].replicas
    assert [one.calls for one in installation.replicas.values()] == [[], []]


@pytest.mark.parametrize("read_from", [pb.READ_FROM_ANY, pb.READ_FROM_REPLICA])
@pytest.mark.parametrize("is_known", [True, False], ids=["nobody leads", "the leader was killed just now"])
def test_without_a_leader_replicas_list_topics_and_say_how_stale_that_may_be(
    installation: Installation, read_from: int, is_known: bool
) -> None:
    """ListTopics asked the last leader, whatever the caller allowed."""
    installation.lack("r2", 1, age=40.0)
    installation.is_led = not is_known
    with failing(installation.leader, ServiceUnavailableError("away"), "list_queues", "list_topics"):
        answer, found = listed(installation, read_from)
    (row,) = answer.shards
    assert (found, answer.completeness) == (counted(installation.records), PARTIAL)
    assert list(row.replicas) == ["r3"]
    assert 0.5 <= row.staleness.ToMicroseconds() / 1e6 < 0.6
    assert row.known_lag_bytes == 0
    assert "No leader" in row.error.message


def test_a_list_of_queues_that_a_replica_has_not_built_does_not_say_how_stale_it_is(installation: Installation) -> None:
    installation.is_led = False
    for name in installation.replicas:
        behind = installation.replicas[name] = Building(installation.records)
        behind.built_offset = installation.records[-1].commit_log_offset
    answer, _ = listed(installation, pb.READ_FROM_ANY)
    (row,) = answer.shards
    assert answer.completeness == PARTIAL
    assert not row.HasField("staleness")
    assert row.known_lag_bytes == installation.records[-1].store_size_bytes


def test_settings_of_topics_come_from_a_replica_and_commands_go_to_the_leader(installation: Installation) -> None:
    leader, replica = MemoryTopicAdmin("Old"), MemoryTopicAdmin("Old", "New")
    reading = ShardReading(
        leader.of(installation.leader.shard(BROKER)),
        [Source("r2", replica.of(installation.replicas["r2"].shard(BROKER)), installation.facts["r2"])],
        Choice(ReadFrom.ANY),
        is_led=False,
        old_end=0,
        clock=lambda: NOW,
    )
    deadline = Deadline.after(10)
    assert topics_of(reading.shard, deadline).keys() == {"Old", "New"}
    assert list(reading.replicas) == ["r2"]
    reading.shard.call(CREATE_TOPIC, log_pb.CreateTopicRequest(topic="Made", queue_count=4), deadline)
    assert leader.topics.keys() == {"Old", "Made"}
    assert replica.topics.keys() == {"Old", "New"}


def explained(installation: Installation, key: str) -> pb.ExplainQueryResponse:
    request = pb.ExplainQueryRequest()
    request.by_key.topic, request.by_key.key = installation.records[-1].topic, key
    request.by_key.read.read_from = pb.READ_FROM_REPLICA
    answer: pb.ExplainQueryResponse = installation.servicer.ExplainQuery(request, Context())
    return answer


def test_a_query_is_explained_as_it_would_be_read(installation: Installation) -> None:
    """ExplainQuery asked the leader, whatever the query that it explains allows."""
    answer = explained(installation, installation.records[-1].keys[0])
    assert (answer.message_count, answer.completeness) == (len(installation.expected(installation.records)), COMPLETE)
    assert list(answer.shards[0].replicas) == ["r2"]
    assert "search" not in installation.leader.calls

    installation.is_led = False
    answer = explained(installation, installation.records[-1].keys[0])
    (row,) = answer.shards
    assert answer.completeness == PARTIAL
    assert 0.5 <= row.staleness.ToMicroseconds() / 1e6 < 0.6
    assert "No leader" in row.error.message


def test_an_explained_query_without_a_leader_does_not_say_that_nothing_is_there(installation: Installation) -> None:
    installation.is_led = False
    request = pb.ExplainQueryRequest()
    request.by_offset.topic = "no such topic"
    request.by_offset.read.read_from = pb.READ_FROM_ANY
    answer = installation.servicer.ExplainQuery(request, Context())
    assert "No leader" in answer.error.message
