"""Query by offsetMsgId: the record that starts where the id says.

The id names a store host and an offset. The host is a shard's name at the time of writing, perhaps of a machine that is
gone: nothing dials it. It only decides between shards that both have a record at the offset.
"""

from dataclasses import dataclass

from gateway.deadline import Deadline
from gateway.limits import check_not_empty, check_topic
from gateway.page import Page, PageEntry
from gateway.ports import FoundRecord, Shard
from gateway.shards import Shards, require_topic
from store.errors import BrokerNotFoundError, OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.format.message_id import decode_offset_msg_id


@dataclass(frozen=True, slots=True)
class AddressedRecord:
    """A record and the shard that holds it."""

    broker_name: str
    record: FoundRecord


def query_by_offset_msg_id(
    shards: Shards, offset_msg_id: str, topic: str, broker_name: str, deadline: Deadline
) -> PageEntry:
    """The message; a body that fits no answer is omitted.

    Args:
        shards: all shards.
        offset_msg_id: the id.
        topic: what the message's topic must be; empty: any.
        broker_name: the shard to ask; empty: all.
        deadline: the caller's.

    Raises:
        InvalidMessageIdError: it is no id.
        RecordNotFoundError: no record starts there, or one of another topic.
        TopicNotFoundError: the topic is unknown.
        BrokerNotFoundError: no such shard, or several have a record there and none has the id's host.
    """
    if topic:
        check_topic(topic)
    found = find_record(shards, offset_msg_id, broker_name, deadline)
    if topic and found.record.topic != topic:
        require_topic(shards, topic, deadline)
        raise RecordNotFoundError(
            f"The message {offset_msg_id} is of topic {found.record.topic!r}, not {topic!r}.",
            offsetMsgId=offset_msg_id,
            topic=found.record.topic,
        )
    page = Page(1)
    page.add(found.broker_name, found.record)
    return page.entries[0]


def find_record(shards: Shards, offset_msg_id: str, broker_name: str, deadline: Deadline) -> AddressedRecord:
    """The record with its body, whatever its size; errors as `query_by_offset_msg_id`."""
    check_not_empty(offset_msg_id, "offset_msg_id")
    host, commit_log_offset = decode_offset_msg_id(offset_msg_id)
    asked = [shards.named(broker_name)] if broker_name else list(shards)

    def ask(shard: Shard) -> AddressedRecord:
        return AddressedRecord(shard.broker_name, shard.records.get(commit_log_offset, deadline))

    answers = shards.fan_out.ask(asked, ask)
    found = [answer for answer in answers if isinstance(answer, AddressedRecord)]
    of_host = [answer for answer in found if answer.record.store_host == str(host)]
    if len(of_host) == 1:
        return of_host[0]
    # A shard that did not answer may hold the one that is meant: its failure must not look like "not found".
    for answer in answers:
        if isinstance(answer, StoreError) and not isinstance(answer, RecordNotFoundError | OffsetOutOfRangeError):
            raise answer
    if len(found) > 1:
        names = ", ".join(answer.broker_name for answer in found)
        raise BrokerNotFoundError(
            f"{names} each have a record at byte {commit_log_offset}: broker_name must choose.",
            brokerNames=names,
            commitLogOffset=commit_log_offset,
        )
    if found:
        return found[0]
    raise _not_found(offset_msg_id, commit_log_offset, [answer for answer in answers if isinstance(answer, StoreError)])


def _not_found(offset_msg_id: str, commit_log_offset: int, errors: list[StoreError]) -> RecordNotFoundError:
    reasons = " ".join(error.message for error in errors)
    variables = {key: value for error in errors for key, value in error.metadata.items()}
    variables |= {"offsetMsgId": offset_msg_id, "commitLogOffset": str(commit_log_offset)}
    return RecordNotFoundError(f"No message has the id {offset_msg_id}. {reasons}", **variables)
