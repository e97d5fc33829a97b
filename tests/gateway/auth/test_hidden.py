"""What a caller may not see is neither shown nor counted, and costs the same work as what is not there."""

from collections import Counter
from types import SimpleNamespace

import grpc
import pytest

from gateway.auth.access import READ, Access, Role
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.caller_shards import CallerShards, VisibleTopics, work_for
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from gateway.ports.chain import Concern
from gateway.ports.groups import GET_GROUP
from gateway.ports.shard import SEARCH_KEY, get_record
from gateway.ports.shards import Shards
from gateway.queries.page import PageTokens
from gateway.reput.servicer import GatewayServicer
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.methods import GATEWAY_SERVICE
from store.errors import PermissionDeniedError, RecordNotFoundError
from store.format.derived.index_layout import index_key, key_hash
from tests.gateway.auth.conftest import OTHER, OWN, access_text, shown
from tests.gateway.groups.memory_groups import MemoryGroups, copy_of, group_settings
from tests.gateway.memory_shard import MemoryShard, with_records
from tests.gateway.reput.test_explain import CONTEXT, ExplainedShard


def seen(shards, fan_out, patterns):
    """The shard as a reader of these topics has it."""
    source = shards if isinstance(shards, CallerShards) else CallerShards(Shards(shards, fan_out))
    with work_for(VisibleTopics(Access("c", {Role.READ: patterns}), READ)):
        (shard,) = source.now()
    return shard


class CountedReads:
    """A RecordReader that notes which reads find a record."""

    def __init__(self, records):
        self._records = records
        self.found = []

    def get(self, commit_log_offset, deadline):
        try:
            record = self._records.get(commit_log_offset, deadline)
        except Exception:
            self.found.append(False)
            raise
        self.found.append(True)
        return record

    def get_many(self, *asked):
        return self._records.get_many(*asked)


def test_a_foreign_record_took_more_reads_than_an_absent_one(records, fan_out, deadline) -> None:
    """Its answer came later, at each quantile, so that anybody could tell where foreign records begin."""
    memory = MemoryShard(records)
    reads = CountedReads(memory)
    source = CallerShards(Shards([with_records(memory.shard(), reads)], fan_out))
    foreign = [record for record in records if record.topic != "b_order"][:5]
    work, words = [], []
    for commit_log_offset in [
        offset for each in foreign for offset in (each.commit_log_offset + 3, each.commit_log_offset)
    ]:
        reads.found.clear()
        with pytest.raises(RecordNotFoundError) as refused:
            get_record(seen(source, fan_out, ["b_order"]), commit_log_offset, deadline)
        work.append(Counter(reads.found))
        words.append(refused.value.message.replace(str(commit_log_offset), "OFFSET"))
    assert work == [Counter({True: 1, False: 1})] * 10
    assert len(set(words)) == 1


def member(client_id: str, *topics: str) -> consumer_pb.Client:
    return consumer_pb.Client(
        client_id=client_id,
        consumer_group="group",
        subscriptions=[pb.TopicSubscription(topic=topic) for topic in topics],
        language="JAVA",
        version="5.2.0",
        address="10.0.0.9:1",
    )


def test_members_that_consume_only_hidden_topics_are_no_members(fan_out, deadline) -> None:
    """Their ids, versions and addresses were shown, with an empty list of topics."""
    groups = MemoryGroups()
    groups.groups["group"] = group_settings("group")
    groups.members["group"] = [member("own", OWN), member("both", OWN, OTHER), member("other", OTHER), member("silent")]
    asked = consumer_pb.GetGroupRequest(consumer_group="group")
    whole = groups.facts(asked, deadline)
    whole.problems.append("members differ: other")
    groups.facts = lambda *_: copy_of(whole)

    def shown(patterns) -> consumer_pb.GetGroupResponse:
        return seen([groups.shard("broker-a")], fan_out, patterns).call(GET_GROUP, asked, deadline)

    assert [(each.client_id, [of.topic for of in each.subscriptions]) for each in shown(["shop-*"]).clients] == [
        ("own", [OWN]),
        ("both", [OWN]),
    ]
    assert "other" not in str(shown(["shop-*"]))
    assert "10.0.0.9" not in str(shown(["nothing"]))
    assert [each.client_id for each in shown(["*"]).clients] == ["own", "both", "other", "silent"]
    assert list(shown(["*"]).problems) == ["members differ: other"]


def colliding(topic: str, wanted: int) -> str:
    """A key of the topic with this hash: digits of base 31, each the same distance away from a printable character."""
    first, count = 33, 8
    rest = (wanted - key_hash_32(index_key(topic, chr(first) * count))) % (1 << 32)
    digits = []
    for _ in range(count):
        rest, digit = divmod(rest, 31)
        digits.append(chr(first + digit))
    return "".join(reversed(digits))


def key_hash_32(text: str) -> int:
    """Java's String.hashCode, unsigned."""
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) % (1 << 32)
    return value


def test_an_explanation_counted_hidden_messages_with_a_key_of_the_same_hash(records, fan_out) -> None:
    """A key can be made with the hash of a key of another topic: the explanation said whether there is such a message."""
    hidden = next(each for each in records if each.topic != "b_order" and each.keys and each.topic[0] != "%")
    twin = colliding("b_order", key_hash_32(index_key(hidden.topic, hidden.keys[0])))
    assert key_hash(index_key("b_order", twin)) == key_hash(index_key(hidden.topic, hidden.keys[0]))
    memory = ExplainedShard(records, topics={"b_order": 4})
    source = CallerShards(Shards([memory.shard()], fan_out))

    def explained(key: str, patterns) -> pb.ExplainQueryResponse:
        with work_for(VisibleTopics(Access("c", {Role.READ: patterns}), READ)):
            request = pb.ExplainQueryRequest(by_key=pb.QueryMessageByKeyRequest(topic="b_order", key=key))
            answer = GatewayServicer(source, PageTokens("s")).ExplainQuery(request, CONTEXT)
        answer.elapsed_micros = 0
        for shard in answer.shards:
            shard.elapsed_micros = 0
            for row in (*shard.steps, *shard.lookups):
                row.ClearField("elapsed_micros" if isinstance(row, pb.ShardExplanation.Step) else "key")
        return answer

    assert str(explained(twin, ["b_order"])) == str(explained("absent key".replace(" ", "-"), ["b_order"]))
    assert explained(twin, ["*"]).shards[0].lookups[0].rejected_count >= 1


@pytest.mark.parametrize("why", [pb.PASSED_OVER_FILTER, pb.PASSED_OVER_TIME])
def test_why_an_index_was_not_asked_told_of_hidden_messages(records, fan_out, why) -> None:
    """A filter that holds the hash of a hidden key, and times without messages, are facts of other topics, too."""

    def summarized(method, request, deadline, below):
        found = below(method, request, deadline)
        if method is SEARCH_KEY:
            found.passed_over = why
        return found

    memory = ExplainedShard(records, topics={"b_order": 4})
    source = CallerShards(Shards([memory.shard().with_link(Concern.SUMMARIES, summarized)], fan_out))

    def told(patterns) -> int:
        with work_for(VisibleTopics(Access("c", {Role.READ: patterns}), READ)):
            request = pb.ExplainQueryRequest(by_key=pb.QueryMessageByKeyRequest(topic="b_order", key="AaAa"))
            answer = GatewayServicer(source, PageTokens("s")).ExplainQuery(request, CONTEXT)
        return answer.shards[0].lookups[0].passed_over

    assert told(["*"]) != pb.PASSED_OVER_UNSPECIFIED
    assert told(["b_order"]) == pb.PASSED_OVER_UNSPECIFIED


def test_the_end_of_the_log_and_its_newest_time_told_when_hidden_messages_came(records, fan_out) -> None:
    memory = ExplainedShard(records, topics={"b_order": 4})
    source = CallerShards(Shards([memory.shard()], fan_out))
    servicer = GatewayServicer(source, PageTokens("s"))
    asked = [
        lambda: servicer.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic="b_order", key="AaAa"), CONTEXT),
        lambda: servicer.QueryMessageByOffset(pb.QueryMessageByOffsetRequest(topic="b_order"), CONTEXT),
        lambda: servicer.FindMessage(pb.FindMessageRequest(text="AaAa"), CONTEXT),
        lambda: servicer.ListTopics(pb.ListTopicsRequest(), CONTEXT),
    ]

    def rows(patterns) -> list[pb.ShardOutcome]:
        with work_for(VisibleTopics(Access("c", {Role.READ: patterns}), READ)):
            return [row for ask in asked for row in ask().shards]

    assert all(row.indexed_up_to_offset and row.log_end_offset for row in rows(["*"]))
    assert rows(["b_order"]) == [pb.ShardOutcome(broker_name="broker-a")] * len(asked)
    memory.built_offset = 1
    assert {row.log_end_offset for row in rows(["b_order"])[:1]} == {1}


def test_another_identity_freed_the_locks_of_a_member_by_its_client_id(tmp_path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(access_text({name: {"read": ["*"]} for name in ("one", "other")}))
    sign_in = SignIn(
        WatchedFile("access_file", path, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    guard = GatewayGuard(sign_in, Audit(lambda event, **fields: None, lambda: 0.0))
    inner = grpc.unary_unary_rpc_method_handler(lambda request, context: "answered")
    handler = guard.guard(GATEWAY_SERVICE + "LockQueues", inner)
    request = pb.LockQueuesRequest(consumer_group="g", client_id="member", unlock=True)

    def call(client: str) -> object:
        metadata = shown(client)
        context = SimpleNamespace(invocation_metadata=lambda: metadata, peer=lambda: "ipv4:127.0.0.1:1")
        return handler.unary_unary(request, context)

    assert call("one") == "answered"
    with pytest.raises(PermissionDeniedError, match="in use by another client"):
        call("other")
    assert call("one") == "answered"
