"""What has become of a message that waits, or waited: its record stays in the system topic when the wait is over.

still there                             a record of the message lies in its own topic: `find_original` has followed it there
recalled                                a later record of the timer topic says so (property TIMER_DEL_UNIQKEY)
given up                                a record of the message lies in TRANS_CHECK_MAX_TIME_TOPIC
rolled back                             the schedule service does not know the half message, and none of the above
"""

from gateway.groups.copies import Original, copies_of, find_later, only
from gateway.groups.tracked import FactsOf, MessageState, TrackedMessage
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards
from gateway.ports.waiting import DELAY_LEVELS, KNOWN_OFFSET, LIST_TRANSACTIONS
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import StoreError
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

# Half messages of a topic that are looked through for one; a topic with more is in trouble, and its messages do wait.
LISTED_PAGE_COUNT_MAX = 16
LISTED_COUNT = 1_000


def settled(shards: Shards, facts_of: FactsOf, original: Original, deadline: Deadline) -> tuple[Original, MessageState]:
    """The message, and where it is: also when it reaches its topic at this moment.

    Raises:
        StoreError: it cannot be known.
    """
    facts = original.facts
    within = only(shards, original.broker_name)
    (shard,) = within
    if facts.topic == TIMER_TOPIC and facts.unique_key:
        for each in copies_of(within, facts_of, TIMER_TOPIC, facts.unique_key, [], deadline):
            if each.facts.is_recall and each.facts.commit_log_offset > facts.commit_log_offset:
                return original, MessageState.RECALLED
    if facts.topic != HALF_TOPIC or not shard.has(LIST_TRANSACTIONS) or not facts.unique_key:
        return original, facts.state
    known_offset = shard.call(KNOWN_OFFSET, pb.GetStatusRequest(), deadline)
    if _is_listed(shard, facts.target_topic, facts.unique_key, deadline):
        return original, facts.state
    # Each check stores the half message again, which the service may not have seen yet.
    for each in copies_of(within, facts_of, HALF_TOPIC, facts.unique_key, [], deadline):
        if each.facts.target_topic == facts.target_topic and each.facts.commit_log_offset >= known_offset:
            return original, facts.state
    for each in copies_of(within, facts_of, CHECK_MAX_TIME_TOPIC, facts.unique_key, [], deadline):
        if each.facts.commit_log_offset > facts.commit_log_offset:
            return original, MessageState.GIVEN_UP
    later = find_later(within, facts_of, original, deadline)  # it may have been committed since it was looked for
    return (original, MessageState.ROLLED_BACK) if later is None else (later, later.facts.state)


def due_millis(shard: Shard, facts: TrackedMessage, deadline: Deadline) -> int | None:
    """When a message that waits for its time is due (ms since 1970); None when that is not known.

    A delay level counts as the schedule service of the shard has it, and as RocketMQ has it where there is no such service.
    """
    if facts.topic != SCHEDULE_TOPIC:
        return facts.timer_millis
    try:
        levels = (
            shard.call(DELAY_LEVELS, pb.GetStatusRequest(), deadline)
            if shard.has(DELAY_LEVELS)
            else DELAY_LEVELS_MILLIS
        )
    except StoreError:
        return None
    return facts.store_time_millis + levels[min(facts.queue_id, len(levels) - 1)]


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
