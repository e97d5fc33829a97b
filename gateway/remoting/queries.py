"""Queries: messages by a key or unique key (12), one message by its byte of the log (33), and the units of a queue (321).

Sources: `QueryMessageProcessor`, `DefaultMessageStore.queryMessage` of RocketMQ 5.5.0. As there, the messages of a key come in
the order of the log, and the newest are taken when there are more than asked for. They differ from a broker's:

- A message comes only when it has the key itself; a broker sends what has the key's hash, and leaves the rest to its client.
- `lastKey` names a message by its column #IndexKey: older ones come. A broker with index files ignores it (ADR 0148).
- Messages that together are longer than a frame are cut to the newest ones; a broker's answer would end the connection.
- An index that is behind or cannot be read is a failure when nothing was found, and not QUERY_NOT_FOUND. When something was
  found, the remark says that messages may be missing, and why; a client that does not read it takes the part for the whole.
- A lack that does not pass, of entries of tags, is told with a code after which clients do not ask again.
- An unknown `indexType` is refused; a broker takes it for a key.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from gateway.ports.deadline import Deadline
from gateway.ports.shard import get_record, get_units
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import KeyQuestion, MatchPage, merge_matches, tags_question
from gateway.queries.completeness import ShardOutcome
from gateway.queries.freshness import Part
from gateway.queries.page import check_key, check_topic
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.groups import subscription_of_group
from gateway.remoting.records import record_of
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import FRAME_BYTES_MAX
from services.rocketmq.fastjson import dump_bytes
from store.errors import (
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordNotFoundError,
    ServiceUnavailableError,
    TopicNotFoundError,
    UnsupportedStoreError,
)

# RocketMQ's maxMsgsNumBatch, and its defaultQueryMaxNum, which counts for unique keys.
COUNT_MAX, UNIQUE_COUNT = 64, 32
# Units of one answer.
UNIT_COUNT_MAX = 1_024
KEY_INDEX, UNIQUE_INDEX, TAG_INDEX = "K", "U", "T"
INDEX_KEY_PART_COUNT = 6  # of hour@topic@type@key@unique key@offset
# Of the bodies of one answer: a frame, without its header.
ANSWER_BYTES_MAX = FRAME_BYTES_MAX - (64 << 10)


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    return {
        RequestCode.QUERY_MESSAGE: shard.once_built(query_message),
        RequestCode.VIEW_MESSAGE_BY_ID: in_thread(partial(view_message, shard)),
        RequestCode.QUERY_CONSUME_QUEUE: in_thread(partial(query_consume_queue, shard)),
    }


def query_message(shard: DoorShard, ask: Ask) -> Answer:
    """12: the messages of a topic that have a key, or a unique key."""
    topic, key = ask.text("topic"), ask.text("key")
    check_topic(topic)
    check_key(key, "key")
    is_unique = ask.flag("_UNIQUE_KEY_QUERY")
    count = UNIQUE_COUNT if is_unique else min(max(ask.number("maxNum"), 1), COUNT_MAX)
    window = TimeWindow(ask.time_millis("beginTimestamp"), ask.time_millis("endTimestamp"))
    index_type = ask.text("indexType", "") or KEY_INDEX
    if index_type not in (KEY_INDEX, UNIQUE_INDEX, TAG_INDEX):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"indexType {index_type[:200]!r} is none: K (keys), U (unique keys) and T (tags) are",
        )
    if index_type == TAG_INDEX and not is_unique:
        question = tags_question(topic, key, window)
    else:
        question = KeyQuestion(topic, key, window, lambda record: record.unique_key == key or key in record.keys)
    cursors = {shard.shard.broker_name: below} if (below := _offset_in(ask.text("lastKey", ""))) is not None else {}
    deadline = Deadline.after(CALL_SECONDS)

    def query(shards: Shards) -> tuple[MatchPage, Sequence[ShardOutcome], message_pb2.Completeness]:
        found = merge_matches(shards, question, cursors, count, deadline)
        return found, found.outcomes, found.completeness

    page, outcomes, completeness = shard.waits.ask(shard.shards, (), Part.INDEX, deadline, query)
    why = ""
    if completeness == message_pb2.COMPLETENESS_PARTIAL:
        error = next((each.error for each in outcomes if each.error is not None), None)
        why = "the index is behind the log" if error is None else error.message
        if not page.entries and isinstance(error, UnsupportedStoreError):
            raise error
        if not page.entries:
            raise ServiceUnavailableError(f"nothing is found yet: {why}", service=Part.INDEX.value)
    if not page.entries:
        fields = {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
        remark = "can not find message, maybe time range not correct"
        return Answer(fields, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
    records = sorted((entry.record for entry in page.entries), key=lambda record: record.commit_log_offset)
    newest = records[-1]
    progress = next((each.progress for each in outcomes if each.progress is not None), None)
    built_offset = newest.commit_log_offset if progress is None else progress.next_offset
    built_millis = None if progress is None else progress.built_up_to_millis
    body = _newest_that_fit(shard, records, deadline)
    fields = {"indexLastUpdatePhyoffset": str(built_offset), "indexLastUpdateTimestamp": str(built_millis or 0)}
    return Answer(fields, body, remark=f"messages may be missing: {why}" if why else "")


def _offset_in(last_key: str) -> int | None:
    """The offset in the log (bytes) that the column #IndexKey of mqadmin ends with; None without a key.

    RefusedError when it is none.
    """
    if not last_key:
        return None
    parts = last_key.split("@")
    if len(parts) < INDEX_KEY_PART_COUNT or not (
        parts[-1].isascii() and parts[-1].isdecimal() and len(parts[-1]) <= 19
    ):
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"lastKey {last_key[:200]!r} is none: hour@topic@type@key@unique key@offset is one",
        )
    return int(parts[-1])


def view_message(shard: DoorShard, ask: Ask) -> Answer:
    """33: the message whose record starts at a byte of the log; a message's offset id names the byte."""
    offset = ask.number("offset")
    try:
        record = get_record(shard.shard, offset, Deadline.after(CALL_SECONDS))
    except (RecordNotFoundError, OffsetOutOfRangeError) as error:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}: {error.message}"
        ) from error
    return Answer(body=record_of(record))


def query_consume_queue(shard: DoorShard, ask: Ask) -> Answer:
    """321: units of a queue from a position on, and the queue's range; the units that a filter wants are not marked."""
    topic, queue_id, index = ask.text("topic"), ask.number("queueId"), ask.number("index")
    count = min(max(ask.number("count"), 0), UNIT_COUNT_MAX)
    group = ask.text("consumerGroup", "")
    deadline = Deadline.after(CALL_SECONDS)
    try:
        found = get_units(shard.shard, topic, queue_id, max(index, 0), max(count, 1), deadline).answer
    except (TopicNotFoundError, QueueNotFoundError) as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!") from error
    document: dict[str, object] = {"maxQueueIndex": found.max_offset, "minQueueIndex": found.min_offset}
    if group:
        document["filterData"] = f"{group}@{topic} is not online!"
        wanted = subscription_of_group(shard, group, topic)
        if wanted is not None:
            document |= {"filterData": "null", "subscriptionData": wanted}
    if not found.min_offset <= index < found.max_offset:
        return Answer(body=b"", remark=f"Index {index} of {queue_id}@{topic} is not exist!")
    document["queueData"] = [
        {
            "eval": False,
            "physicOffset": unit.commit_log_offset,
            "physicSize": unit.record_size_bytes,
            "tagsCode": unit.tags_code,
        }
        for unit in found.units[:count]
    ]
    return Answer(body=dump_bytes(dict(sorted(document.items()))))


def _newest_that_fit(shard: DoorShard, records: Sequence[StoredMessage], deadline: Deadline) -> bytes:
    """The records, in their order; without the oldest ones when there is no room for all. The newest one always comes."""
    found: list[bytes] = []
    free_bytes = ANSWER_BYTES_MAX
    for record in reversed(records):
        data = _bytes_of(shard, record, deadline)
        free_bytes -= len(data)
        if found and free_bytes < 0:
            break
        found.append(data)
    return b"".join(reversed(found))


def _bytes_of(shard: DoorShard, record: StoredMessage, deadline: Deadline) -> bytes:
    """The record as the log has it, with its body."""
    if record.body_omitted:
        record = get_record(shard.shard, record.commit_log_offset, deadline)
    return record_of(record)
