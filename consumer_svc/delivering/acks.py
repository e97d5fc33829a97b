"""Acknowledgements, changes of the invisible time, messages given back or given up; as RocketMQ's AckMessageProcessor and
ChangeInvisibleTimeProcessor.

A handle names one delivery. While it is in flight, it can be changed. When it is not: before the time that the handle names, it
was acknowledged (or given up) by this delivery; later, it was delivered again or moved.
"""

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future

from consumer_svc.delivering.life import INVISIBLE_MILLIS_MAX, Life
from consumer_svc.delivering.moves import attempts_of, dead_letter_of
from consumer_svc.delivering.receipt_handle import ReceiptHandle
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import Delivered, Ended, Hidden, Lease, QueueRef, Returned
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import read_message
from store.errors import InvalidArgumentError, InvalidReceiptHandleError, ReceiptHandleNotFoundError
from store.format.topic import is_light_queue, popped_topic_of

ACK_COUNT_MAX = 1_024


# The outcome of an acknowledgement: see AckMessagesResponse.Outcome.
OK = pb.AckMessagesResponse.OUTCOME_OK
TOO_LATE = pb.AckMessagesResponse.OUTCOME_TOO_LATE
INVALID = pb.AckMessagesResponse.OUTCOME_INVALID


class Acks:
    """Serves what consumers say about deliveries.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    def ack(self, consumer_group: str, receipt_handles: Sequence[str]) -> Sequence["pb.AckMessagesResponse.Outcome"]:
        """Acknowledge deliveries; the outcomes in order. In the log when this returns.

        Raises:
            StoreError: for some of them it is not known.
        """
        if not 1 <= len(receipt_handles) <= ACK_COUNT_MAX:
            raise InvalidArgumentError(
                f"{len(receipt_handles)} receipt handles: 1 to {ACK_COUNT_MAX} are possible", field="receipt_handles"
            )
        life = self._life
        life.refuse_if_over()
        handles = [self._read(consumer_group, text) for text in receipt_handles]
        outcomes: list[pb.AckMessagesResponse.Outcome] = []
        acked: dict[QueueRef, list[int]] = {}
        with life.lock:
            for handle in handles:
                if handle is None:
                    outcomes.append(INVALID)
                elif self._lease(handle) is not None:
                    acked.setdefault(handle.queue, []).append(handle.queue_offset)
                    outcomes.append(OK)
                else:
                    outcomes.append(OK if self._may_be_acked(handle) else TOO_LATE)
            if acked:
                written = life.change([Ended(ref, offsets) for ref, offsets in acked.items()])
            else:
                written = life.newest_write()  # of the acknowledgement before, which may still be under way
            self._note_freed(acked)
        if OK in outcomes:
            wait_for(written)
        return outcomes

    def note_delivered(self, receipt_handles: Sequence[str]) -> None:
        """Clients have these deliveries: they are renewed from now on. Handles that are none, or over, are passed over."""
        life = self._life
        life.refuse_if_over()
        handles: list[ReceiptHandle] = []
        for text in receipt_handles:
            with contextlib.suppress(InvalidReceiptHandleError):
                handles.append(life.handles.read(text, None))
        delivered: dict[QueueRef, list[int]] = {}
        with life.lock:
            for handle in handles:
                lease = self._lease(handle)
                if lease is not None and lease.renew_until_millis and not lease.is_delivered:
                    delivered.setdefault(handle.queue, []).append(handle.queue_offset)
            if delivered:
                # Not waited for: without this change the messages only come again after their 60 s.
                life.change([Delivered(ref, offsets) for ref, offsets in delivered.items()], may_lose=True)

    def change_invisible(
        self,
        consumer_group: str,
        receipt_handle: str,
        invisible_millis: int,
        *,
        is_released: bool = False,
        suspends: bool = False,
    ) -> str:
        """Hide a message from now on for another time; the new handle.

        `suspends` hides all messages of the lite topic that the group has in flight. They are delivered again after that time,
        and these deliveries do not count as attempts.

        Raises:
            InvalidReceiptHandleError, ReceiptHandleNotFoundError: nothing was changed.
            InvalidArgumentError: the time is not possible.
        """
        if not 0 <= invisible_millis <= INVISIBLE_MILLIS_MAX:
            raise InvalidArgumentError(
                f"invisible_duration is {invisible_millis} ms: 0 to 12 h are possible", field="invisible_duration"
            )
        life = self._life
        with life.lock:
            handle, lease = self._held(consumer_group, receipt_handle)
            now = life.clock.millis()
            until = now + invisible_millis
            hidden = [lease]
            if suspends:
                is_released = True
                hidden += self._others(handle)
            changes: list[Change] = [Hidden(handle.queue, one.queue_offset, until, is_released) for one in hidden]
            written = life.change(changes + (life.behind(handle.queue, lease) if is_released else []))
            for one in hidden:
                life.expiry.note(until, handle.queue, one.queue_offset, one.delivery_number)
        wait_for(written)
        new = ReceiptHandle(handle.queue, handle.queue_offset, lease.delivery_number, until, lease.serial)
        if handle.mark is not None:
            return life.handles.make_check_point(new, now, handle.queue_offset)
        return life.handles.make(new)

    def give_back(self, consumer_group: str, receipt_handle: str) -> None:
        """Hand a message out again at once: its program did not get it. Errors as `change_invisible`."""
        life = self._life
        with life.lock:
            handle, lease = self._held(consumer_group, receipt_handle)
            lease.is_released = True
            changes: list[Change] = [Returned(handle.queue, [lease.returned()])]
            written = life.change(changes + life.behind(handle.queue, lease))
            life.note_again(handle.queue)
        wait_for(written)

    def give_up(self, consumer_group: str, receipt_handle: str) -> None:
        """Move a message to the group's dead letters. Errors as `change_invisible`, and those of reading the message.

        Without effect for a message that is done with: a caller whose answer was lost repeats the call until it is told OK.
        """
        life = self._life
        life.refuse_if_over()
        with life.lock:
            handle = life.handles.read(receipt_handle, consumer_group)
            is_done = self._lease(handle) is None and self._is_done(handle)
            if is_done:
                written_before = life.newest_write()
            else:
                handle, lease = self._held(consumer_group, receipt_handle)
                lease.is_moving = True
        if is_done:
            wait_for(written_before)
            return
        written: Future[int] | None = None
        ref, at = handle.queue, handle.queue_offset
        try:
            message = read_message(life.reader, ref.topic, ref.queue_id, at)
            if message is None:
                raise ReceiptHandleNotFoundError(
                    f"message {at} of topic {ref.topic} is not in the log any more", queueOffset=at
                )
            with life.lock:
                if self._is_moving(handle, lease):
                    attempts = attempts_of(message, lease.delivery_number - lease.uncounted)
                    record = dead_letter_of(message, consumer_group, attempts, life.clock.millis())
                    written = life.change([Ended(ref, [at])], [record])
                    self._note_freed({ref: [at]})
        finally:
            with life.lock:
                lease.is_moving = False
                # Its end may have come meanwhile, and was not taken.
                life.expiry.note(lease.invisible_until_millis, ref, at, lease.delivery_number)
        if written is not None:
            wait_for(written)

    def _read(self, consumer_group: str, text: str) -> ReceiptHandle | None:
        try:
            return self._life.handles.read(text, consumer_group)
        except InvalidReceiptHandleError:
            return None

    def _lease(self, handle: ReceiptHandle) -> Lease | None:
        state = self._life.states.find(handle.queue)
        lease = state.leases.get(handle.queue_offset) if state is not None else None
        if lease is None or lease.is_moving:
            return None
        if handle.mark is not None:
            until = lease.invisible_until_millis
            mark = self._life.handles.mark(handle.queue.consumer_group, handle.pop_millis, until, lease.serial)
            return lease if (until, mark) == (handle.invisible_until_millis, handle.mark) else None
        names = (handle.delivery_number, handle.serial)
        return lease if names == (lease.delivery_number, lease.serial) else None

    def _held(self, consumer_group: str, receipt_handle: str) -> tuple[ReceiptHandle, Lease]:
        self._life.refuse_if_over()
        handle = self._life.handles.read(receipt_handle, consumer_group)
        lease = self._lease(handle)
        if lease is None:
            raise ReceiptHandleNotFoundError(
                f"message {handle.queue_offset} of queue {handle.queue.queue_id} of topic {handle.queue.topic} is not in "
                "flight by this delivery any more: it was acknowledged, delivered again or moved",
                queueOffset=handle.queue_offset,
            )
        return handle, lease

    def _others(self, handle: ReceiptHandle) -> Sequence[Lease]:
        """What else the group has in flight in a lite topic."""
        state = self._life.states.find(handle.queue)
        if state is None or not is_light_queue(handle.queue.topic):
            return ()
        return [lease for at, lease in state.leases.items() if at != handle.queue_offset and not lease.is_moving]

    def _may_be_acked(self, handle: ReceiptHandle) -> bool:
        return self._is_done(handle) and self._life.clock.millis() < handle.invisible_until_millis

    def _is_done(self, handle: ReceiptHandle) -> bool:
        """Whether a message was acknowledged or given up, by this delivery or another."""
        state = self._life.states.find(handle.queue)
        if state is None or handle.queue_offset >= state.next_offset:
            return False  # the group was deleted or reset: it comes again
        topic = popped_topic_of(handle.queue.consumer_group, handle.queue.topic)
        if self._life.topics.deleted_before(topic) and any(
            begin <= handle.queue_offset < end for begin, end in state.resets
        ):
            return False  # it was deleted with its topic
        in_flight = handle.queue_offset in state.leases or handle.queue_offset in state.waiting
        return not in_flight and handle.queue_offset not in state.moved

    def _is_moving(self, handle: ReceiptHandle, lease: Lease) -> bool:
        state = self._life.states.find(handle.queue)
        return state is not None and state.leases.get(handle.queue_offset) is lease

    def _note_freed(self, acked: "dict[QueueRef, list[int]]") -> None:
        """Messages may wait for those that were acknowledged."""
        for ref in acked:
            state = self._life.states.find(ref)
            if state is not None and (state.waiting or is_light_queue(ref.topic)):
                self._life.note_again(ref)
