"""What has become of a message that waits, or waited: its record stays in the system topic when the wait is over.

still there                             a record of the message lies in its own topic: `find_original` has followed it there
recalled                                a later record of the timer topic says so (property TIMER_DEL_UNIQKEY)
given up                                a record of the message lies in TRANS_CHECK_MAX_TIME_TOPIC
rolled back                             the schedule service does not know the half message, and none of the above
"""

from gateway.groups.copies import Original, copies_of, find_later, only
from gateway.groups.tracked import is_recall, state_of, target_topic_of, timer_millis_of
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, store_millis
from gateway.ports.shards import Shards
from gateway.ports.waiting import DELAY_LEVELS, KNOWN_OFFSET, LIST_TRANSACTIONS
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import StoreError
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

# Half messages of a topic that are looked through for one; a topic with more is in trouble, and its messages do wait.
LISTED_PAGE_COUNT_MAX = 16
LISTED_COUNT = 1_000


def settled(shards: Shards, original: Original, deadline: Deadline) -> tuple[Original, gateway_pb.MessageState]:
    """The message, and where it is: also when it reaches its topic at this moment.

    Raises:
        StoreError: it cannot be known.
    """
    record, state = original.record, state_of(original.record)
    within = only(shards, original.broker_name)
    (shard,) = within
    if record.topic == TIMER_TOPIC and record.unique_key:
        for each in copies_of(within, TIMER_TOPIC, record.unique_key, [], deadline):
            if is_recall(each.record) and each.record.commit_log_offset > record.commit_log_offset:
                return original, gateway_pb.MESSAGE_STATE_RECALLED
    if record.topic != HALF_TOPIC or not shard.has(LIST_TRANSACTIONS) or not record.unique_key:
        return original, state
    known_offset = shard.call(KNOWN_OFFSET, pb.GetStatusRequest(), deadline)
    topic = target_topic_of(record)
    if _is_listed(shard, topic, record.unique_key, deadline):
        return original, state
    # Each check stores the half message again, which the service may not have seen yet.
    for each in copies_of(within, HALF_TOPIC, record.unique_key, [], deadline):
        if target_topic_of(each.record) == topic and each.record.commit_log_offset >= known_offset:
            return original, state
    for each in copies_of(within, CHECK_MAX_TIME_TOPIC, record.unique_key, [], deadline):
        if each.record.commit_log_offset > record.commit_log_offset:
            return original, gateway_pb.MESSAGE_STATE_GIVEN_UP
    later = find_later(within, original, deadline)  # it may have been committed since it was looked for
    return (original, gateway_pb.MESSAGE_STATE_ROLLED_BACK) if later is None else (later, state_of(later.record))


def due_millis(shard: Shard, record: StoredMessage, deadline: Deadline) -> int | None:
    """When a message that waits for its time is due (ms since 1970); None when that is not known.

    A delay level counts as the schedule service of the shard has it, and as RocketMQ has it where there is no such service.
    """
    if record.topic != SCHEDULE_TOPIC:
        return timer_millis_of(record)
    try:
        levels = (
            shard.call(DELAY_LEVELS, pb.GetStatusRequest(), deadline)
            if shard.has(DELAY_LEVELS)
            else DELAY_LEVELS_MILLIS
        )
    except StoreError:
        return None
    return store_millis(record) + levels[min(record.queue_id, len(levels) - 1)]


def _is_listed(shard: Shard, topic: str, unique_key: str, deadline: Deadline) -> bool:
    """Whether the schedule service waits for a verdict on it, or has too many of the topic to tell."""
    request = pb.ListPendingTransactionsRequest(topic=topic, page_size=LISTED_COUNT)
    for _ in range(LISTED_PAGE_COUNT_MAX):
        page = shard.call(LIST_TRANSACTIONS, request, deadline)
        if any(each.unique_key == unique_key for each in page.transactions):
            return True
        if not page.next_page_token:
            return False
        request.page_token = page.next_page_token
    return True
