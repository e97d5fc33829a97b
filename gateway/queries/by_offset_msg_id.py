"""Query by offsetMsgId: the record that starts where the id says.

The id names a store host and an offset. The host is the shard's address at the time of writing; the machine may be gone,
so nothing connects to it. It only decides between shards that both have a record at the offset.

A machine's address belongs to one shard (docs/scale.md), so its record is the message whatever other shards answer. A
loopback address, which is the default, may be that of every shard. Then a shard's record is the message only when all other
shards have answered; a shard that does not answer makes the query fail, unless `broker_name` leaves it out.
"""

from dataclasses import dataclass
from ipaddress import ip_address

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, get_record, held_elsewhere
from gateway.ports.shards import Shards, require_topic
from gateway.queries.completeness import was_dropped
from gateway.queries.page import Page, PageEntry, check_not_empty, check_topic
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import BrokerNotFoundError, OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.format.host import Host
from store.format.message_id import decode_offset_msg_id


@dataclass(frozen=True, slots=True)
class AddressedRecord:
    """A record and the shard that holds it."""

    broker_name: str
    record: StoredMessage


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
        BrokerNotFoundError: no such shard, or several have a record there and no single one has the id's host.
        UnsupportedStoreError: the log has dropped it, and the store may have it where it is not read.
        StoreError: a shard that may have the message did not answer.
    """
    if topic:
        check_topic(topic)
    found = find_record(shards, offset_msg_id, broker_name, deadline, topic)
    if topic and found.record.topic != topic:
        require_topic(shards, topic, deadline)
        raise RecordNotFoundError(
            f"The message {offset_msg_id} is of topic {found.record.topic!r}, not {topic!r}.",
            offsetMsgId=offset_msg_id,
            topic=found.record.topic,
        )
    page: Page = Page(1)
    page.add(found.broker_name, found.record)
    return page.entries[0]


def find_record(
    shards: Shards, offset_msg_id: str, broker_name: str, deadline: Deadline, topic: str = ""
) -> AddressedRecord:
    """The record with its body, whatever its size; errors as `query_by_offset_msg_id`.

    With a `topic`, its messages alone may be where they are not read.
    """
    check_not_empty(offset_msg_id, "offset_msg_id")
    host, commit_log_offset = decode_offset_msg_id(offset_msg_id)
    asked = [shards.named(broker_name)] if broker_name else list(shards)

    shard_deadline = deadline.for_one_of(len(asked))

    def ask(shard: Shard) -> AddressedRecord:
        return AddressedRecord(shard.broker_name, get_record(shard, commit_log_offset, shard_deadline))

    answers = shards.fan_out.ask(asked, ask)
    found = [answer for answer in answers if isinstance(answer, AddressedRecord)]
    of_host = [answer for answer in found if answer.record.store_host == str(host)]
    if len(of_host) == 1 and (len(asked) == 1 or _is_of_a_machine(host)):
        return of_host[0]
    # A shard that did not answer may have the message, so neither "not found" nor another record would be right.
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
    for shard, answer in zip(asked, answers, strict=True):
        if isinstance(answer, StoreError) and was_dropped(answer, commit_log_offset):
            held = held_elsewhere(shard, topic, deadline)
            if held is not None:
                raise held
    raise _not_found(offset_msg_id, commit_log_offset, [answer for answer in answers if isinstance(answer, StoreError)])


def _is_of_a_machine(host: Host) -> bool:
    """Whether the address can belong to a single shard only."""
    address = ip_address(host.ip)
    return not (address.is_loopback or address.is_unspecified)


def _undecided(shard: Shard, failure: StoreError) -> StoreError:
    """The error of one shard of several, with the way to leave it out."""
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
