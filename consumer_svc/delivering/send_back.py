"""SendBacks: messages that were pulled and not consumed come again later; RocketMQ's `consumerSendMsgBack`.

    level 0                                      3, and one more for each attempt before
    level above the largest                      the largest
    level below 0, or all attempts are used up   the group's dead-letter topic
    else                                         waits in `SCHEDULE_TOPIC_XXXX`, then the schedule service delivers it to
                                                 `%RETRY%<group>`, or, when members live and all of them pop, to
                                                 `%RETRY%<group>_<topic>`

The copy and the change that says so are one atomic request. The state remembers which messages were sent back (the newest
MOVED_COUNT_MAX of a queue), so a call that is repeated, or a member that reads a message again, sends it back once. A reset, or
a position that is moved back, forgets what follows it. A group without a position in the queue begins at its first
message. Where new groups begin at the end of a topic, and this one has not begun here, a gateway is refused once: it lets the
group begin, because it knows whether the group has begun in another shard. For another caller it begins at the end of the other
queues.
"""

from collections.abc import Sequence
from concurrent.futures import Future

from consumer_svc.delivering.life import Life, check_group_name, group_not_known
from consumer_svc.delivering.moves import attempts_of, dead_letter_of, sent_back_of
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import Ended, Moved, QueueRef
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import read_message
from store.errors import InvalidArgumentError, OffsetOutOfRangeError, TopicNotFoundError
from store.format.properties import DELAY

SENT_BACK_COUNT_MAX = 32
# Of level 0 after the first attempt: 10 s.
DELAY_LEVEL_FIRST = 3


class SendBacks:
    """Serves send-backs.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    def send_back(
        self,
        ref: QueueRef,
        queue_offsets: Sequence[int],
        delay_level: int,
        caller: str = "",
        *,
        known_only: bool = False,
        attempts_max: int = 0,
        for_pullers: bool = False,
    ) -> "Sequence[gateway_pb.SendBackOutcome]":
        """Send messages back for a caller; the outcomes in order. In the log when this returns.

        `attempts_max` counts instead of that of the group, unless it is 0. With `for_pullers` they come in `%RETRY%<group>`
        whoever lives.

        Raises:
            GroupNotFoundError: `known_only`, and the group is not known, or has not begun; nothing was sent back.
            ResourceBusyError: the group is new, and the caller's share of groups is in use.
            InvalidArgumentError, TopicNotFoundError, OffsetOutOfRangeError: nothing was sent back.
            StoreError: for some of them it is not known; the call may be repeated.
        """
        life = self._life
        if not 1 <= len(queue_offsets) <= SENT_BACK_COUNT_MAX:
            raise InvalidArgumentError(
                f"{len(queue_offsets)} positions: 1 to {SENT_BACK_COUNT_MAX} are possible", field="queue_offsets"
            )
        check_group_name(ref.consumer_group)
        first_offset = self._check_positions(ref, queue_offsets)
        life.refuse_if_over()
        with life.lock:
            has_begun = life.has_begun(ref.consumer_group, ref.topic)
            if known_only and (not has_begun or ref.consumer_group not in life.states.groups):
                raise group_not_known(ref.consumer_group, begins_at_end=not has_begun)
            life.group(ref.consumer_group, caller)
            written = life.newest_write()  # of what was sent back before, which may still be under way
        is_popped = not for_pullers and life.clients.reads_no_pull_retries(ref.consumer_group)
        outcomes: list[gateway_pb.SendBackOutcome] = []
        for queue_offset in queue_offsets:  # one after the other: a body may have 4 MiB
            message = read_message(life.reader, ref.topic, ref.queue_id, queue_offset)
            with life.lock:
                outcome, written = self._send_back(
                    ref, queue_offset, first_offset, message, delay_level, attempts_max, written, is_popped=is_popped
                )
            outcomes.append(outcome)
        wait_for(written)
        return outcomes

    def _send_back(
        self,
        ref: QueueRef,
        queue_offset: int,
        first_offset: int,
        message: StoredMessage | None,
        delay_level: int,
        attempts_max: int,
        written: "Future[int]",
        *,
        is_popped: bool,
    ) -> "tuple[gateway_pb.SendBackOutcome, Future[int]]":
        """One message; its outcome, and what is done when it is in the log. The lock is held."""
        life = self._life
        state = life.states.find(ref)
        if state is not None and queue_offset in state.moved:
            return gateway_pb.SEND_BACK_OUTCOME_OK, written
        if message is None:
            if state is not None:
                state.removed_count += 1
            return gateway_pb.SEND_BACK_OUTCOME_REMOVED, written
        attempts = attempts_of(message, 1)
        if delay_level < 0 or attempts >= (attempts_max or life.attempts_max(life.settings(ref.consumer_group))):
            record = dead_letter_of(message, ref.consumer_group, attempts, None)
            record.properties[DELAY] = "0"
            outcome = gateway_pb.SEND_BACK_OUTCOME_DEAD_LETTER
        else:
            level = min(delay_level or DELAY_LEVEL_FIRST + attempts - 1, life.rules.delay_level_max)
            record = sent_back_of(message, ref.consumer_group, attempts, level, is_popped=is_popped)
            outcome = gateway_pb.SEND_BACK_OUTCOME_OK
        changes: list[Change] = [Ended(ref, [queue_offset], moved=True)]
        if state is None:
            life.check_room(ref.consumer_group)
            begin: list[Change] = [Moved(ref, first_offset, is_reset=True)]  # none before the message is consumed
            if not life.has_begun(ref.consumer_group, ref.topic):  # and the other queues begin where a pop would begin
                begin += [at for at in life.ends(ref.consumer_group, ref.topic) if at.queue != ref]
            changes = begin + changes
        return outcome, life.change(changes, [record])

    def _check_positions(self, ref: QueueRef, queue_offsets: Sequence[int]) -> int:
        """The first position of the queue."""
        reader = self._life.reader
        if not reader.recent.ends(ref.topic):
            raise TopicNotFoundError(f"topic {ref.topic!r} has no messages in this shard", topic=ref.topic)
        known = reader.range(ref.topic, ref.queue_id)
        for queue_offset in queue_offsets:
            if not 0 <= queue_offset < known.max_offset:
                raise OffsetOutOfRangeError(
                    f"queue {ref.queue_id} of topic {ref.topic} has no message at {queue_offset}: its end is "
                    f"{known.max_offset}",
                    queueOffset=queue_offset,
                    minOffset=known.min_offset,
                    maxOffset=known.max_offset,
                )
        return known.min_offset
