"""Query by offsetMsgId: the record that starts where the id says.

The id names a store host and an offset. The host is a shard's name at the time of writing, perhaps of a machine that is
gone: nothing dials it. It only decides between shards that both have a record at the offset.

An address of a machine is one shard's (docs/scale.md): its record is the message, whatever the others say. A loopback
address, such as the one that is written by default, may be every shard's: what one has at the offset is the message only
when all others have said what they have there. Then one that does not answer costs the answer, unless `broker_name` leaves
it out.
"""

from dataclasses import dataclass
from ipaddress import ip_address

from gateway.deadline import Deadline
from gateway.limits import check_not_empty, check_topic
from gateway.page import Page, PageEntry
from gateway.ports import FoundRecord, Shard
from gateway.shards import Shards, require_topic
from store.errors import BrokerNotFoundError, OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.format.host import Host
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
        BrokerNotFoundError: no such shard, or several have a record there and not one alone has the id's host.
        StoreError: a shard did not say what it has there, and the message may be that one's.
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

    shard_deadline = deadline.for_one_of(len(asked))

    def ask(shard: Shard) -> AddressedRecord:
        return AddressedRecord(shard.broker_name, shard.records.get(commit_log_offset, shard_deadline))

    answers = shards.fan_out.ask(asked, ask)
    found = [answer for answer in answers if isinstance(answer, AddressedRecord)]
    of_host = [answer for answer in found if answer.record.store_host == str(host)]
    if len(of_host) == 1 and _is_of_a_machine(host):
        return of_host[0]
    # A shard that did not answer may hold the one that is meant: neither "not found" nor another's record is the answer.
    for shard, answer in zip(asked, answers, strict=True):
        if isinstance(answer, StoreError) and not isinstance(answer, RecordNotFoundError | OffsetOutOfRangeError):
            if len(asked) == 1:
                raise answer
            raise _undecided(shard, answer) from answer
    if len(of_host) == 1:
        return of_host[0]
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


def _is_of_a_machine(host: Host) -> bool:
    """Whether the address can be one shard's alone."""
    address = ip_address(host.ip)
    return not (address.is_loopback or address.is_unspecified)


def _undecided(shard: Shard, failure: StoreError) -> StoreError:
    """The failure of one shard of several, and how to do without it."""
    error = type(failure)(
        f"{failure.message} The message may be in shard {shard.broker_name}: name another by broker_name to leave it out."
    )
    error.metadata = {"brokerName": shard.broker_name, **failure.metadata}
    return error


def _not_found(offset_msg_id: str, commit_log_offset: int, errors: list[StoreError]) -> RecordNotFoundError:
    reasons = " ".join(error.message for error in errors)
    variables = {key: value for error in errors for key, value in error.metadata.items()}
    variables |= {"offsetMsgId": offset_msg_id, "commitLogOffset": str(commit_log_offset)}
    return RecordNotFoundError(f"No message has the id {offset_msg_id}. {reasons}", **variables)
