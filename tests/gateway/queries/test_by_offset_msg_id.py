"""Queries by offsetMsgId go by the offset; the host only decides between shards."""

import threading
from dataclasses import replace

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STORE_FACTS
from gateway.ports.shards import Shards
from gateway.ports.store_facts import StoreFacts
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from store.errors import (
    BrokerNotFoundError,
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidMessageIdError,
    RecordNotFoundError,
    ServiceUnavailableError,
    TopicNotFoundError,
    UnsupportedStoreError,
)
from store.format.host import Host
from store.format.message_id import encode_offset_msg_id
from tests.gateway.memory_shard import MemoryShard, records_in, shown
from tests.gateway.shards.archived.archived_shard import ShortenedShard


@pytest.fixture
def ask(fan_out, deadline):
    def ask(shards, offset_msg_id, topic="", broker_name=""):
        of = Shards([memory.shard(name) for name, memory in shards.items()], fan_out)
        return query_by_offset_msg_id(of, offset_msg_id, topic, broker_name, deadline)

    return ask


@pytest.mark.parametrize("host", [Host("127.0.0.1", 10911), Host("8.8.8.8", 1), Host("2001:db8::1", 10911)])
def test_the_address_in_an_id_does_not_matter(ask, records, host):
    record = records[100]
    entry = ask({"a": MemoryShard(records)}, encode_offset_msg_id(host, record.commit_log_offset))

    assert records_in([entry]) == [shown(record)]


@pytest.mark.parametrize("offset", [1, 1 << 62])
def test_an_offset_without_a_record_is_not_found(ask, records, offset):
    with pytest.raises(RecordNotFoundError):
        ask({"a": MemoryShard(records)}, encode_offset_msg_id(Host("127.0.0.1", 10911), offset))


@pytest.mark.parametrize("wrong", ["x", "7F", "7F00000100002A9F000000000000000", "Z" * 32, "0" * 33, "F" * 32])
def test_what_is_no_id_is_refused(ask, records, wrong):
    with pytest.raises(InvalidMessageIdError):
        ask({"a": MemoryShard(records)}, wrong)


def test_an_empty_id_is_refused_by_field(ask, records):
    with pytest.raises(InvalidArgumentError) as refused:
        ask({"a": MemoryShard(records)}, "")

    assert refused.value.metadata["field"] == "offset_msg_id"


def test_a_topic_that_is_given_must_be_the_messages(ask, records):
    record = next(record for record in records if record.topic == "b_order")
    shards = {"a": MemoryShard(records)}
    offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)

    assert records_in([ask(shards, offset_msg_id, topic="b_order")]) == [shown(record)]
    with pytest.raises(RecordNotFoundError):
        ask(shards, offset_msg_id, topic="b_log")
    with pytest.raises(TopicNotFoundError):
        ask(shards, offset_msg_id, topic="nosuch")


def test_of_two_shards_with_a_record_there_the_one_of_the_host_answers(ask, records):
    other_host = Host("10.0.0.2", 10911)
    others = [replace(record, store_host=other_host) for record in records]
    shards = {"a": MemoryShard(records), "b": MemoryShard(others)}
    offset = records[7].commit_log_offset

    assert ask(shards, encode_offset_msg_id(other_host, offset)).broker_name == "b"
    assert ask(shards, encode_offset_msg_id(records[7].store_host, offset)).broker_name == "a"
    with pytest.raises(BrokerNotFoundError):
        ask(shards, encode_offset_msg_id(Host("10.0.0.3", 10911), offset))
    assert ask(shards, encode_offset_msg_id(Host("10.0.0.3", 10911), offset), broker_name="b").broker_name == "b"
    with pytest.raises(BrokerNotFoundError):
        ask(shards, encode_offset_msg_id(other_host, offset), broker_name="c")


def test_a_shard_that_fails_is_not_taken_for_one_without_the_record(ask, records):
    failing = MemoryShard(records, failures={"get": ServiceUnavailableError("gone")})

    with pytest.raises(ServiceUnavailableError):
        ask({"a": MemoryShard(records), "b": failing}, encode_offset_msg_id(Host("127.0.0.1", 10911), 1))


@pytest.mark.parametrize("host", [Host("127.0.0.1", 10911), Host("::1", 10911)])
def test_while_the_owner_is_down_another_shards_record_of_the_same_host_was_taken_for_the_message(ask, records, host):
    records = [replace(record, store_host=host) for record in records]
    failing = MemoryShard(records, failures={"get": ServiceUnavailableError("gone", service="commitlog")})
    shards = {"a": MemoryShard(records), "b": failing}
    offset_msg_id = encode_offset_msg_id(host, records[7].commit_log_offset)

    with pytest.raises(ServiceUnavailableError, match=r"gone .*shard b.*broker_name") as refused:
        ask(shards, offset_msg_id)
    assert refused.value.metadata == {"brokerName": "b", "service": "commitlog"}
    assert records_in([ask(shards, offset_msg_id, broker_name="a")]) == [shown(records[7])]
    with pytest.raises(ServiceUnavailableError, match=r"^gone$"):
        ask(shards, offset_msg_id, broker_name="b")


def test_a_shard_that_is_down_costs_nothing_where_each_has_an_address_of_its_own(ask, records):
    records = [replace(record, store_host=Host("10.0.1.1", 10911)) for record in records]
    failing = MemoryShard(records, failures={"get": ServiceUnavailableError("gone")})
    offset_msg_id = encode_offset_msg_id(Host("10.0.1.1", 10911), records[7].commit_log_offset)

    assert records_in([ask({"a": MemoryShard(records), "b": failing}, offset_msg_id)]) == [shown(records[7])]
    with pytest.raises(ServiceUnavailableError):
        ask(
            {"a": MemoryShard(records), "b": failing},
            encode_offset_msg_id(Host("10.0.2.1", 10911), records[7].commit_log_offset),
        )


@pytest.mark.parametrize("host", [Host("127.0.0.1", 10911), Host("10.0.2.1", 10911)])
def test_one_shard_that_hangs_took_all_the_time_of_a_query_by_id(records, fan_out, host):
    """Each of several has three quarters of it, so that there is time for the answer, or to say which one it was."""
    now = [100.0]
    records = [replace(record, store_host=host) for record in records]
    asked = threading.Event()
    deadline = Deadline.after(8.0, lambda: now[0])

    class Hanging(MemoryShard):
        def get(self, commit_log_offset, deadline):
            assert asked.wait(60)
            now[0] += deadline.remaining_seconds()
            deadline.remaining_seconds()

    class Quick(MemoryShard):
        def get(self, commit_log_offset, deadline):
            found = super().get(commit_log_offset, deadline)
            asked.set()
            return found

    shards = Shards([Hanging(records).shard("a"), Quick(records).shard("b")], fan_out)
    offset_msg_id = encode_offset_msg_id(host, records[7].commit_log_offset)

    if host.ip == "127.0.0.1":
        with pytest.raises(DeadlineExceededError) as late:
            query_by_offset_msg_id(shards, offset_msg_id, "", "", deadline)
        assert late.value.metadata["brokerName"] == "a"
    else:
        assert records_in([query_by_offset_msg_id(shards, offset_msg_id, "", "", deadline)]) == [shown(records[7])]
    assert deadline.remaining_seconds() == 2.0


@pytest.mark.parametrize("topic", ["", "Orders"])
def test_an_expired_id_of_a_store_that_may_hold_it_elsewhere_names_the_feature(records, fan_out, deadline, topic):
    facts = StoreFacts({"": UnsupportedStoreError("it is elsewhere", feature="f")}, {})
    kept = records[50:]
    memory = ShortenedShard(kept, {})
    memory.first_offset = kept[0].commit_log_offset
    shards = Shards([memory.shard().serving(STORE_FACTS, lambda request, deadline: facts)], fan_out)
    host = Host("127.0.0.1", 10911)
    with pytest.raises(UnsupportedStoreError) as caught:
        query_by_offset_msg_id(shards, encode_offset_msg_id(host, 0), topic, "", deadline)
    assert caught.value.metadata["feature"] == "f"
    with pytest.raises(RecordNotFoundError):
        query_by_offset_msg_id(shards, encode_offset_msg_id(host, memory.first_offset + 1), topic, "", deadline)
    without = Shards([memory.shard()], fan_out)  # what is elsewhere is not asked for there
    with pytest.raises(RecordNotFoundError):
        query_by_offset_msg_id(without, encode_offset_msg_id(host, 0), topic, "", deadline)
