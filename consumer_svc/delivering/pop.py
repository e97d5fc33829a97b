"""Pop: hands out messages of a topic to a group, as RocketMQ's PopMessageProcessor does.

The queues of the topic and of the group's retry topic take turns. In each queue, messages that wait to be handed out again come
first, then new ones. What the filter does not want is consumed for the group.

The queues of a topic of the type PRIORITY do not take turns: the highest comes first, and of each number the retry topic's
before the topic's, because a retry keeps its queue number (ADR 0153). An ordered group gets no priorities, and the group's
factor may leave some pops as those of other topics.

Lite topics: a client gets messages of those that it subscribes to and that have news (`lite_news.py`), of several in one
answer. Of one that has messages in flight in the group it gets nothing, so each is in order.

In an ordered group, a message is passed while an earlier one of its message group is in flight or waits; it then waits itself.
The next poll of the same attempt gets the messages of an answer that was lost again.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from consumer_svc.delivering.life import INVISIBLE_MILLIS_MAX, Life, check_bound, check_consuming, group_not_known
from consumer_svc.delivering.moves import next_retry_topic_of
from consumer_svc.delivering.picks import MESSAGE_COUNT_MAX, Pick, Taking
from consumer_svc.delivering.receipt_handle import ReceiptHandle
from consumer_svc.filters.message_filter import EVERYTHING, MessageFilter
from consumer_svc.state.group_states import Change, GroupSet, GroupSettings
from consumer_svc.state.queue_state import Ended, HandedOut, Lease, Moved, Postponed, QueueRef, QueueState
from consumer_svc.wire import check_topic_named, count_of, duration_millis, filter_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import delivery_count, millis_to_timestamp
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import ANSWER_BODY_BYTES_MAX, read_message
from store.errors import DeadlineExceededError, InvalidArgumentError, ServiceUnavailableError, StoreError
from store.format.delivery.consumer_files import PRIORITY_FACTOR_MAX
from store.format.topic import RETRY_PREFIX, retry_topic_v2_of, validate_topic

# Hidden for so long when the caller says nothing, and renewed for so long in all while its client lives.
RENEWED_INVISIBLE_MILLIS = 60_000
RENEWED_MILLIS_MAX = 3 * 3_600_000
# Units that one pop looks at in one queue: a filter that takes nothing goes on with the next pop.
SCANNED_UNIT_COUNT_MAX = 1_000
UNIT_PAGE_COUNT = 64
# Messages of an ordered queue that wait for others of their message group; then the queue waits for them.
PASSED_COUNT_MAX = 1_000
ID_SIZE_BYTES_MAX = 1_024
# Has no divisor in common with 100, so that pops by priority and others alternate as evenly as they can.
FACTOR_STEP = 61
# These pass by themselves: lower priorities wait for the queue.
NOT_NOW = (ServiceUnavailableError, DeadlineExceededError)
# Groups and topics of which it is known which queue comes next; then all begin with their first one again.
TURN_COUNT_MAX = 16_384
# Lite topics that one pop looks at: most have something, unless very many had their news told twice.
LITE_TOPIC_COUNT_MAX = 256


@dataclass(frozen=True, slots=True)
class HandOut:
    """What all deliveries of a pop have in common.

    Attributes:
        millis: when it began (ms since 1970).
        until_millis: when the messages become visible again (ms since 1970).
        renew_until_millis: until when that is renewed (ms since 1970); 0: it is not.
        serial: names the deliveries.
    """

    millis: int
    until_millis: int
    renew_until_millis: int
    serial: int


class Pops:
    """Serves pops.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        # By group and topic: pops so far, and how many of them were not by priority.
        self._turns: dict[tuple[str, str], tuple[int, int]] = {}

    def pop(self, request: pb.PopMessagesRequest) -> pb.PopMessagesResponse:
        """The messages that are handed out; they are in flight in the log when this returns.

        Raises:
            InvalidArgumentError, IllegalFilterError: the request is wrong.
            GroupNotFoundError: `known_only`, and this shard does not know the group, or where it begins; or `begun_only`, and
                it has no position in the topic.
            TopicNotFoundError: there is no such topic, and no message makes it by itself, or it was deleted.
            StoreError: nothing was handed out, or it is not known and the leases end by themselves.
        """
        check_topic_named(request.topic)
        invisible_millis = duration_millis(request.invisible_duration, "invisible_duration")
        count_max = count_of(request.max_messages, "max_messages", MESSAGE_COUNT_MAX, MESSAGE_COUNT_MAX)
        wanted = filter_of(request.filter)
        _check(request, invisible_millis)
        life = self._life
        consumer_group, topic = request.consumer_group, request.topic
        life.refuse_if_over()
        life.topics.check_readable(topic)
        with life.lock:
            # A group that only asks is not made: nothing is known of it but its name (ADR 0111).
            settings = life.settings(consumer_group)
            if settings.broadcast:
                raise InvalidArgumentError(
                    f"group {consumer_group[:64]} broadcasts: each member keeps its own positions, so it has to pull; a "
                    "poll would give each message to one member only",
                    field="consumer_group",
                )
            check_consuming(settings)
            life.clients.note_pop(consumer_group, request.client_id)
        if settings.lite is not None and not request.is_lite:
            raise InvalidArgumentError(
                f"group {consumer_group[:64]} consumes lite topics of {settings.lite.bind_topic}: a poll has to say is_lite",
                field="is_lite",
            )
        if request.is_lite:
            return self._pop_lite(request, settings, count_max, invisible_millis)
        with life.lock:
            if (
                request.begun_only
                and not topic.startswith(RETRY_PREFIX)
                and not life.has_position(consumer_group, topic)
            ):
                raise group_not_known(consumer_group, begins_at_end=life.rules.begins_at_end)
            is_empty = not any(map(life.reader.recent.ends, _topics(consumer_group, topic)))
            if not life.has_begun(consumer_group, topic):
                if request.known_only:
                    raise group_not_known(consumer_group, begins_at_end=True)
                self._begin_topic(request)
            elif request.known_only and not is_empty:
                life.check_known(consumer_group)
            has_messages = bool(life.reader.recent.ends(topic))
        # After its beginning: a group that asks for a topic before it is made gets its first message.
        life.topics.check_exists(topic, has_messages=has_messages, may_come=True)
        if is_empty:
            return pb.PopMessagesResponse()
        response = pb.PopMessagesResponse()
        delivered = response.deliveries
        writes: list[Future[int]] = []
        unbuilt: QueueRef | None = None
        failed: StoreError | None = None
        body_bytes_left = ANSWER_BODY_BYTES_MAX
        if request.in_order and not settings.ordered:
            settings = self._order(settings, request.caller)
        with life.turn(consumer_group, topic):
            is_by_priority = not settings.ordered and life.topics.is_by_priority(topic)
            queues = list(self._queues(request, settings.priority_factor if is_by_priority else 0))
            out = self._out(invisible_millis)
            if settings.ordered and request.attempt_id:
                self._again(request, queues, out, response)
                if delivered:
                    del delivered[count_max:]
                    return response
            for ref in queues:
                room = count_max - len(delivered)
                if room <= 0 or body_bytes_left <= 0:
                    break
                try:
                    pick = self._pick(request, wanted, settings, ref, room, body_bytes_left)
                except StoreError as error:
                    failed = failed or error
                    if is_by_priority and not isinstance(error, NOT_NOW):
                        continue  # a damaged queue would keep lower ones back for ever
                    break
                written = self._hand_out(request, settings, pick, out, response)
                if written is not None:
                    writes.append(written)
                    body_bytes_left -= pick.body_bytes
                unbuilt = unbuilt or (ref if pick.is_unbuilt else None)
                # What a higher queue may still have comes first; the pollers look again.
                if pick.is_full or (is_by_priority and (pick.has_more or pick.is_unbuilt)):
                    break
        for write in writes:
            wait_for(write)
        if failed is not None and not delivered:  # what other queues gave is delivered
            raise failed
        if unbuilt is not None and not delivered:
            # Empty would mean that there is nothing, and the caller would wait for an arrival that has been.
            raise ServiceUnavailableError(
                f"queue {unbuilt.queue_id} of topic {unbuilt.topic} has messages and is being built: try again",
                service="consumequeue",
            )
        return response

    def _pop_lite(
        self, request: pb.PopMessagesRequest, settings: GroupSettings, count_max: int, invisible_millis: int
    ) -> pb.PopMessagesResponse:
        """The messages of lite topics that are handed out; see `pop`."""
        life = self._life
        name, client_id = request.consumer_group, request.client_id
        response = pb.PopMessagesResponse()
        if name not in life.states.groups:
            return response  # it was not told to this shard yet; the client's next subscription is
        check_bound(settings, request.topic)
        settings = replace(settings, ordered=True)
        delivered = response.deliveries
        writes: list[Future[int]] = []
        failed: StoreError | None = None
        again: list[str] = []
        body_bytes_left = ANSWER_BODY_BYTES_MAX
        with life.turn(name, f"{request.topic}${client_id}"):
            out = self._out(invisible_millis)
            with life.lock:
                life.news.hear(name, client_id, out.millis)
                before = life.news.attempt(name, client_id, request.attempt_id) if request.attempt_id else ()
            if before:
                self._again(request, before, out, response)
                if delivered:
                    del delivered[count_max:]
                    return response
            try:
                for _ in range(LITE_TOPIC_COUNT_MAX):
                    room = count_max - len(delivered)
                    if room <= 0 or body_bytes_left <= 0:
                        break
                    with life.lock:
                        queue = life.news.take(name, client_id)
                        if queue is None:
                            break
                        ref = QueueRef(name, queue, 0)
                        state = life.states.find(ref)
                        if state is not None and state.leases:
                            life.news.done(name, queue)  # what is in flight says it at its end
                            continue
                    looks_again, written = True, None
                    try:
                        pick = self._pick(request, EVERYTHING, settings, ref, room, body_bytes_left)
                        count_before = len(delivered)
                        written = self._hand_out(request, settings, pick, out, response)
                        if written is not None:
                            writes.append(written)
                            body_bytes_left -= pick.body_bytes
                        looks_again = len(delivered) == count_before and bool(
                            pick.picked or pick.dead or pick.ended or pick.is_full or pick.has_more or pick.is_unbuilt
                        )
                        if pick.is_full:
                            break
                    except StoreError as error:
                        failed = failed or error
                        if isinstance(error, NOT_NOW):
                            break
                    finally:
                        with life.lock:
                            life.news.done(name, queue, is_left=written is None)
                        if looks_again:
                            again.append(queue)
            finally:  # also after an unexpected error: else the lite topic would wait for its next message
                with life.lock:
                    for queue in again:
                        life.news.put_back(name, client_id, queue)
            with life.lock:
                if failed is None and not life.is_over and life.news.has_some(name, client_id):
                    life.arrivals.note_lite({(name, request.topic, client_id)})  # the next poll gets it
        for write in writes:
            wait_for(write)
        if failed is not None and not delivered:
            raise failed
        return response

    def _begin_topic(self, request: pb.PopMessagesRequest) -> None:
        """The first pop of a topic: the group begins at its end."""
        self._life.group(request.consumer_group, request.caller)
        self._life.check_room(request.consumer_group)
        self._life.change(self._life.ends(request.consumer_group, request.topic))

    def _order(self, settings: GroupSettings, caller: str) -> GroupSettings:
        """The settings of a group from now on, which is polled in order."""
        life = self._life
        with life.lock:
            life.group(settings.consumer_group, caller)
            ordered = replace(life.settings(settings.consumer_group), ordered=True)
            life.change([GroupSet(ordered)], may_lose=True)
        return ordered

    def _out(self, invisible_millis: int) -> HandOut:
        life = self._life
        with life.lock:
            now = life.clock.millis()
            until = now + (invisible_millis or RENEWED_INVISIBLE_MILLIS)
            return HandOut(now, until, 0 if invisible_millis else now + RENEWED_MILLIS_MAX, life.next_serial())

    def _queues(self, request: pb.PopMessagesRequest, priority_factor: int) -> Iterator[QueueRef]:
        """The queues that have something, in the order in which this pop asks them; the next pop begins with another.

        `priority_factor`: of 100 pops, so many are by priority.
        """
        life = self._life
        consumer_group, asked_topic = key = request.consumer_group, request.topic
        one = request.queue_id if request.HasField("queue_id") else None
        if one is not None and not request.as_check_points:
            yield QueueRef(consumer_group, asked_topic, one)
            return
        has_attempt = bool(request.attempt_id)
        queues: list[QueueRef] = []
        with life.lock:
            if len(self._turns) > TURN_COUNT_MAX:
                self._turns.clear()
            turn, turn_apart = self._turns.get(key, (0, 0))
            is_by_priority = turn * FACTOR_STEP % PRIORITY_FACTOR_MAX < priority_factor
            self._turns[key] = turn + 1, turn_apart + (not is_by_priority)
            group = life.states.groups.get(consumer_group)
            for topic in _topics(consumer_group, asked_topic):
                states = group.topics.get(topic, {}) if group is not None else {}
                ends = sorted(life.reader.recent.ends(topic).items())
                begin = turn_apart % len(ends) if ends else 0
                for queue_id, end in ends[begin:] + ends[:begin]:
                    if topic == asked_topic and one not in (None, queue_id):
                        continue
                    state = states.get(queue_id)
                    has_again = state is not None and (state.waiting or (has_attempt and state.leases))
                    if state is None or state.next_offset != end or has_again:
                        queues.append(QueueRef(consumer_group, topic, queue_id))
        if is_by_priority:
            queues.sort(key=lambda ref: (-ref.queue_id, ref.topic == asked_topic))
        elif turn_apart % 2:  # neither the topic nor its retry topic is always the last
            queues.sort(key=lambda ref: ref.topic == asked_topic)
        yield from queues

    # -- picking: reads, and changes nothing

    def _pick(
        self,
        request: pb.PopMessagesRequest,
        wanted: MessageFilter,
        settings: GroupSettings,
        ref: QueueRef,
        room: int,
        body_bytes: int,
    ) -> Pick:
        life = self._life
        with life.lock:
            found = life.states.find(ref)
            end = life.reader.recent.end(ref.topic, ref.queue_id)
            if found is not None and found.next_offset > end and not request.is_lite:
                # A position that the queue never had; RocketMQ's getMessage corrects it to the queue's end, too.
                life.change([Moved(ref, end)])
            is_new = found is None
            state = found or QueueState(life.states.begin_offset(ref.topic) if request.is_lite else 0)
            pick = Pick(ref, found, state.version, state.next_offset, state.next_offset)
            if is_new:
                pick.begin_offset = state.next_offset
            now = life.clock.millis()
            held = {lease.message_group for lease in state.leases.values()} if settings.ordered else set()
            again: list[Postponed] = []
            for _, waiting in sorted(state.waiting.items()):
                if waiting.message_group in held or waiting.visible_millis > now:
                    if settings.ordered:
                        held.add(waiting.message_group)
                    continue
                again.append(waiting)
            may_pass = PASSED_COUNT_MAX - len(state.waiting)
        taking = Taking(self._life, request, wanted, settings, pick, held, may_pass, room, body_bytes)
        for waiting in again:
            if not taking.has_room:
                return pick
            run = life.reader.units(ref.topic, ref.queue_id, waiting.queue_offset, 1)
            if run.queue_offset != waiting.queue_offset:
                pick.ended.append(waiting.queue_offset)  # retention removed it
                pick.removed_count += 1
            elif run.units:
                taking.take(run.units, [waiting])
            elif request.is_lite and life.reader.range(ref.topic, 0).min_offset > waiting.queue_offset:
                pick.ended.append(waiting.queue_offset)  # and nothing came behind it
                pick.removed_count += 1
            else:
                pick.is_unbuilt = True
                if settings.ordered:
                    held.add(waiting.message_group)  # what follows it waits for it
        scanned = 0
        while taking.has_room and scanned < SCANNED_UNIT_COUNT_MAX and len(pick.passed) < may_pass:
            count = min(UNIT_PAGE_COUNT, SCANNED_UNIT_COUNT_MAX - scanned) if wanted is not EVERYTHING else taking.room
            run = life.reader.units(ref.topic, ref.queue_id, pick.next_offset, max(1, count))
            if run.queue_offset > pick.next_offset:
                pick.removed_count += 0 if is_new else run.queue_offset - pick.next_offset
                pick.next_offset = run.queue_offset
                if is_new:
                    pick.begin_offset = run.queue_offset
            if not run.units:
                pick.is_unbuilt |= pick.next_offset < end
                if request.is_lite and not is_new and not pick.picked:
                    self._correct(pick)
                break
            fresh = [Postponed(run.queue_offset + at, 0, 0) for at in range(len(run.units))]
            taken_count = taking.take(run.units, fresh)
            pick.next_offset += taken_count
            scanned += taken_count
            if taken_count < len(run.units):
                break
        pick.has_more = scanned >= SCANNED_UNIT_COUNT_MAX or bool(pick.dead)
        return pick

    def _correct(self, pick: Pick) -> None:
        """Take back a position that the light queue never had, as after a cut of the log."""
        life = self._life
        end = life.reader.range(pick.ref.topic, 0).max_offset
        if end < pick.next_offset:
            with life.lock:
                if life.states.find(pick.ref) == pick.state and not life.is_over:
                    life.change([Moved(pick.ref, end)])

    # -- handing out: changes, reads nothing

    def _hand_out(
        self,
        request: pb.PopMessagesRequest,
        settings: GroupSettings,
        pick: Pick,
        out: HandOut,
        response: pb.PopMessagesResponse,
    ) -> "Future[int] | None":
        """Put what was picked into the answer; what is done when it is in the log, None: there is nothing to wait for."""
        life = self._life
        if not (pick.picked or pick.passed or pick.dead or pick.ended or pick.next_offset != pick.first_offset):
            return None
        with life.lock:
            found = life.states.find(pick.ref)
            is_same = found == pick.state if request.is_lite else found is pick.state
            if not is_same or (found is not None and found.version != pick.version):
                return None  # a reset moved the group meanwhile, or it was deleted
            if request.is_lite and not life.states.groups[pick.ref.consumer_group].lite.has(
                request.client_id, pick.ref.topic
            ):
                return None  # another client owns it now
            life.group(request.consumer_group, request.caller)
            client_id, attempt_id = request.client_id, request.attempt_id if settings.ordered else ""
            leases = [
                Lease(
                    waiting.queue_offset,
                    waiting.delivery_number + 1,
                    waiting.uncounted,
                    out.until_millis,
                    out.renew_until_millis,
                    client_id,
                    attempt_id,
                    waiting.message_group,
                    serial=out.serial,
                )
                for _, waiting in pick.picked
            ]
            changes: list[Change] = []
            if pick.begin_offset:  # what lies before it was not consumed
                changes.append(Moved(pick.ref, pick.begin_offset, is_reset=True))
            changes += [HandedOut(pick.ref, pick.next_offset, leases, pick.passed)]
            if pick.ended:
                changes.append(Ended(pick.ref, pick.ended))
            written = life.change(changes, pick.dead, may_lose=not pick.dead)
            if pick.removed_count:
                life.states.queue(pick.ref).removed_count += pick.removed_count
            if request.is_lite and attempt_id and leases:
                life.news.note_attempt(request.consumer_group, client_id, attempt_id, pick.ref)
            if pick.has_more and not leases:
                life.note_again(pick.ref)  # nothing else would make the pollers look at the rest
            for lease in leases:
                life.expiry.note(lease.invisible_until_millis, pick.ref, lease.queue_offset, lease.delivery_number)
        start_offset = min((lease.queue_offset for lease in leases), default=0)
        for (message, _), lease in zip(pick.picked, leases, strict=True):
            self._deliver(request, response, pick.ref, message, lease, out, start_offset)
        return written if leases or pick.dead else None

    def _deliver(
        self,
        request: pb.PopMessagesRequest,
        response: pb.PopMessagesResponse,
        ref: QueueRef,
        message: StoredMessage,
        lease: Lease,
        out: HandOut,
        start_offset: int,
    ) -> None:
        until = lease.invisible_until_millis
        handle = ReceiptHandle(ref, lease.queue_offset, lease.delivery_number, until, lease.serial)
        handles = self._life.handles
        if request.as_check_points and not request.is_lite:
            text = handles.make_check_point(handle, out.millis, start_offset)
        else:
            text = handles.make(handle)
        attempts = delivery_count(message, lease.attempt_count)
        if request.is_lite:  # as RocketMQ shows it: the record's own place is that of the parent
            message.queue_id, message.queue_offset = 0, lease.queue_offset
        response.deliveries.add(
            message=message,
            receipt_handle=text,
            delivery_attempt=attempts,
            invisible_until=millis_to_timestamp(until),
        )

    def _again(
        self,
        request: pb.PopMessagesRequest,
        queues: Sequence[QueueRef],
        out: HandOut,
        response: pb.PopMessagesResponse,
    ) -> None:
        """Put the messages that this attempt got before, in an answer that was lost, into the answer."""
        life = self._life
        names = (request.attempt_id, request.client_id)
        writes: list[Future[int]] = []
        for ref in queues:
            with life.lock:
                state = life.states.find(ref)
                leases = [
                    replace(
                        lease,
                        invisible_until_millis=out.until_millis,
                        is_released=False,
                        # The deliveries of an answer have one mark. The handles of the lost answer are none any more then.
                        serial=out.serial if request.as_check_points else lease.serial,
                    )
                    for _, lease in sorted(state.leases.items() if state is not None else ())
                    if (lease.attempt_id, lease.client_id) == names and not lease.is_moving
                ]
                if state is None or not leases:
                    continue
                writes.append(life.change([HandedOut(ref, state.next_offset, leases)]))  # hidden from now on
                for lease in leases:
                    life.expiry.note(lease.invisible_until_millis, ref, lease.queue_offset, lease.delivery_number)
            start_offset = leases[0].queue_offset
            for lease in leases:
                message = read_message(life.reader, ref.topic, ref.queue_id, lease.queue_offset)
                if message is not None:
                    self._deliver(request, response, ref, message, lease, out, start_offset)
        for write in writes:
            wait_for(write)


def _topics(consumer_group: str, topic: str) -> Sequence[str]:
    """The topics whose messages a pop gets."""
    retry_topic = next_retry_topic_of(consumer_group, topic)
    if retry_topic == topic:
        return (topic,)
    return topic, retry_topic, retry_topic_v2_of(consumer_group, topic)


def _check(request: pb.PopMessagesRequest, invisible_millis: int) -> None:
    """Raise InvalidArgumentError when what would be written of a pop cannot be."""
    for field_name, text in (("client_id", request.client_id), ("attempt_id", request.attempt_id)):
        if len(text.encode(errors="surrogatepass")) > ID_SIZE_BYTES_MAX:
            raise InvalidArgumentError(
                f"{field_name} takes more than {ID_SIZE_BYTES_MAX} bytes: shorten it", field=field_name
            )
    if request.as_check_points and not invisible_millis and not request.is_lite:
        raise InvalidArgumentError(
            "check points need an invisible_duration of 1 ms or more", field="invisible_duration"
        )
    if invisible_millis > INVISIBLE_MILLIS_MAX:
        raise InvalidArgumentError(
            f"invisible_duration is {invisible_millis} ms: at most 12 h are possible", field="invisible_duration"
        )
    try:
        validate_topic(next_retry_topic_of(request.consumer_group, request.topic))
    except StoreError as error:
        raise InvalidArgumentError(
            f"the group {request.consumer_group[:64]!r} cannot consume the topic {request.topic[:64]!r}, because their retry "
            f"topic could not be made: {error.message}",
            field="topic",
        ) from error
