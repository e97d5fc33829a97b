"""Expirer: what happens to messages whose time is over.

    its client has it and lives              hidden for another 60 s
    its program did not get it (below)       it waits in its queue to be handed out again, and the delivery is no attempt
    the group is ordered                     it waits in its queue, and its message group with it
    else                                     appended to the group's retry topic, as RocketMQ's PopReviveService does
    it had all its attempts                  appended to the group's dead-letter topic

The program did not get what was released, what was hidden until its client lives no more and of which nobody has said that the
client has it, and, in an ordered group, what lies behind a message of its message group that is not consumed (ADR 0106).

The copy and the change that says so are one atomic request, so each message is moved exactly once, also across crashes.
"""

import threading
from concurrent.futures import Future

import structlog

from consumer_svc.delivering.expiry_heap import LeaseEnd
from consumer_svc.delivering.life import RELEASED_COUNT_MAX, Life
from consumer_svc.delivering.moves import attempts_of, dead_letter_of, retry_of
from consumer_svc.delivering.pop import RENEWED_INVISIBLE_MILLIS
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import Ended, Lease, QueueState, Returned
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import read_message
from store.errors import StoreError, failure_fields
from store.format.topic import popped_topic_of

# Leases that are ended together, before the next ones are looked at.
BATCH_COUNT_MAX = 256
WAIT_SECONDS_MAX = 1.0
# A message that cannot be read now is tried again after this time.
AGAIN_MILLIS = 1_000
# Ends that are kept of leases that are gone, besides one for each lease.
TRIM_COUNT_MIN = 100_000

_log = structlog.get_logger("reput.consumer")


class Expirer:
    """Ends leases in a thread of its own.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._trim_at = TRIM_COUNT_MIN
        self._thread = threading.Thread(target=self._run, name="consumer-expirer", daemon=True)

    def start(self) -> None:
        """Begin, with the leases that the log has."""
        self.note_all()
        self._thread.start()

    def note_all(self) -> None:
        """Note the ends of exactly the leases that there are: acknowledged ones stay in the heap until then."""
        life = self._life
        with life.lock:
            life.expiry.replace(
                (lease.invisible_until_millis, LeaseEnd(ref, lease.queue_offset, lease.delivery_number))
                for group in life.states.groups.values()
                for ref, queue in group.queues()
                for lease in queue.leases.values()
            )
            self._trim_at = 2 * len(life.expiry) + TRIM_COUNT_MIN

    def close(self) -> None:
        """End."""
        self._life.expiry.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        life = self._life
        while not life.expiry.wait(life.clock.millis(), WAIT_SECONDS_MAX):
            try:
                self.expire_due()
                if len(life.expiry) > self._trim_at:
                    self.note_all()
            except StoreError as error:
                if not life.is_over:
                    _log.warning("expiry.failed", **failure_fields(error))
            except Exception:
                _log.exception("expiry.failed")  # without this thread no message would come again

    def expire_due(self) -> int:
        """End the leases whose time has come; how many there were."""
        life = self._life
        ends = life.expiry.due(life.clock.millis(), BATCH_COUNT_MAX)
        moving = [(end, lease) for end in ends if (lease := self._begin(end)) is not None]
        written: Future[int] | None = None
        failure: Exception | None = None
        for end, lease in moving:
            try:
                written = self._move(end, lease) or written
            except Exception as error:
                failure = failure or error
                lease.is_moving = False
                life.expiry.note(life.clock.millis() + AGAIN_MILLIS, end.queue, end.queue_offset, end.delivery_number)
        if written is not None:
            wait_for(written)  # the last one: changes are written in order
        if failure is not None:
            raise failure
        return len(ends)

    def _begin(self, end: LeaseEnd) -> Lease | None:
        """The lease, if it has really ended and is to be moved; no acknowledgement is taken for it from now on."""
        life = self._life
        with life.lock:
            now = life.clock.millis()
            state = life.states.find(end.queue)
            lease = state.leases.get(end.queue_offset) if state is not None else None
            if lease is None or lease.delivery_number != end.delivery_number or lease.is_moving:
                return None
            if lease.invisible_until_millis > now:
                return None  # it was changed, and noted again then
            name = end.queue.consumer_group
            # An answer that its client never got leaves a lease behind: the client lives, and knows nothing of the message.
            may_renew = lease.is_delivered and now < lease.renew_until_millis
            if may_renew and life.clients.is_renewed(name, lease.client_id):
                lease.invisible_until_millis = min(now + RENEWED_INVISIBLE_MILLIS, lease.renew_until_millis)
                life.expiry.note(lease.invisible_until_millis, end.queue, end.queue_offset, end.delivery_number)
                return None
            lease.is_moving = True
            return lease

    def _move(self, end: LeaseEnd, lease: Lease) -> "Future[int] | None":
        life, ref = self._life, end.queue
        message = read_message(life.reader, ref.topic, ref.queue_id, end.queue_offset)
        with life.lock:
            state = life.states.find(ref)
            if state is None or state.leases.get(end.queue_offset) is not lease:
                return None
            settings = life.settings(ref.consumer_group)
            ended = Ended(ref, [end.queue_offset])
            if message is None:
                state.removed_count += 1
                written = life.change([ended])
            else:
                lease.is_released = self._is_released(settings.orders(ref.topic), state, lease)
                had = attempts_of(message, lease.attempt_count)
                now = life.clock.millis()
                record: InternalRecord | None = None
                if lease.is_released:
                    pass  # it did not become more
                elif had >= life.attempts_max(settings):
                    record = dead_letter_of(message, ref.consumer_group, had, now)
                elif not settings.orders(ref.topic):
                    # Members that only pull would never see the topic of those that pop, and only some see the other one. Push
                    # consumers of RocketMQ in POP mode pull `%RETRY%group` as well, and seem to pull the topic.
                    is_popped = settings.pops(popped_topic_of(ref.consumer_group, ref.topic))
                    is_pulled = not is_popped and life.clients.reads_only_pull_retries(ref.consumer_group)
                    record = retry_of(message, ref.consumer_group, had, now, is_pulled=is_pulled)
                if record is not None:
                    changes: list[Change] = [Ended(ref, [end.queue_offset], moved=True)]
                else:
                    changes = [Returned(ref, [lease.returned()])]
                changes += life.behind(ref, lease)
                written = life.change(changes, [record] if record is not None else ())
            life.note_again(ref)
            return written

    def _is_released(self, is_ordered: bool, state: QueueState, lease: Lease) -> bool:
        """Whether the program did not get the message; the caller holds the life's lock."""
        is_on_its_way = bool(lease.renew_until_millis) and not lease.is_delivered
        is_on_its_way &= lease.uncounted < RELEASED_COUNT_MAX
        return lease.is_released or is_on_its_way or (is_ordered and state.is_behind(lease))
