"""Pulls and positions: RocketMQ's PullMessageProcessor and ConsumerOffsetManager.

The status and the next offset of a pull are those of `DefaultMessageStore.getMessage` of RocketMQ 5.3.3:

    the queue is empty                     NO_NEW_MSG       next = 0 (its only position); others OFFSET_ILLEGAL, next = 0
    below the first message                OFFSET_ILLEGAL   next = min
    at the end                             NO_NEW_MSG       next = the same
    beyond the end                         OFFSET_ILLEGAL   next = max
    the filter takes none                  NO_MATCHED_MSG   next = behind what was looked at
    else                                   FOUND            next = behind the last message looked at
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from consumer_svc.delivering.life import Life, check_consuming
from consumer_svc.filters.message_filter import EVERYTHING, MessageFilter
from consumer_svc.state.group_states import Began, GroupSettings
from consumer_svc.state.queue_state import Ended, Moved, QueueRef
from consumer_svc.wire import check_topic_named, count_of, filter_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.following.state_topic.state_writer import wait_for
from services.following.store_clock import StoreClock
from services.local.encoded_records import EncodedRun, MessageForm, fields_of
from services.reading.queue_reader import QueueRange, checked, is_removed, too_large
from services.serving.admission.shares import KeptKeys, client_of_name
from store.errors import InvalidArgumentError, TopicNotFoundError
from store.format.properties import TAGS, parse_properties
from store.format.record import locate_properties
from store.format.topic import RETRY_OR_DLQ_TOPIC_LENGTH_MAX as TOPIC_LENGTH_MAX
from store.format.topic import TOPIC_QUEUE_COUNT_MAX, is_light_queue, popped_topic_of

MESSAGE_COUNT_MAX = 1_024
MESSAGE_COUNT_DEFAULT = 32
BODY_BYTES_DEFAULT = 262_144  # RocketMQ's maxTransferBytesOnMessageInMemory
BODY_BYTES_MAX = 4 << 20
# Units that one pull looks at: RocketMQ's maxFilterMessageSize / 20 bytes.
SCANNED_UNIT_COUNT_MAX = 800
OFFSET_COUNT_MAX = 1_024
# Fewer messages are not worth the kernel, and the memory that it takes.
ENCODED_COUNT_MIN = 16
# Queues of groups of which it is known that a member pulls them and follows resets.
FOLLOWED_COUNT_MAX = 65_536
MEMBER_CHARACTERS_MAX = 256
# For so long a reset waits for its member; RocketMQ's consumeTimeout: one that pulls less often is stuck.
TOLD_MILLIS_MAX = 15 * 60_000
# Messages of one change.
ENDED_COUNT_MAX = 1_000
# Messages that are read one by one where the kernel stopped, before it is asked again.
PLAIN_COUNT = 16
# With a filter, so many units are looked at together for each message that is still wanted.
CANDIDATE_FACTOR = 4
# Records between two that are wanted, which are read with them.
NEAR_COUNT = 8
FOUND = gateway_pb.PULL_STATUS_FOUND
NO_NEW_MSG = gateway_pb.PULL_STATUS_NO_NEW_MSG
NO_MATCHED_MSG = gateway_pb.PULL_STATUS_NO_MATCHED_MSG
OFFSET_ILLEGAL = gateway_pb.PULL_STATUS_OFFSET_ILLEGAL


class EncodedBatch:
    """The messages of a pull as bytes, each as field 1 of an answer, or their records, each as field 8.

    Args:
        form: what the messages have in common.

    Attributes:
        data: the bytes, in pieces.
    """

    def __init__(self, form: MessageForm) -> None:
        self.form = form
        self.data: list[bytes] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, message: StoredMessage) -> None:
        """One more."""
        self.data.append(pb.PullMessagesResponse(messages=[self.form.shown(message)]).SerializeToString())
        self._count += 1

    def add(self, field: bytes) -> None:
        """One more message or record, as its field of an answer."""
        self.data.append(field)
        self._count += 1

    def extend(self, run: EncodedRun) -> None:
        """The messages, or records, of a run."""
        self.data += run.data
        self._count += run.count


Batch: TypeAlias = list[StoredMessage] | EncodedBatch


class ToldResets:
    """Resets that members which keep their positions themselves have to follow; RocketMQ's `useServerSideResetOffset`.

    A member hears of a reset with its next pull of the queue, and until it pulls there, what it commits has no effect: it does
    not know of the reset yet. What others commit counts, and the member is sent there instead. In memory only; the owner holds
    the life's lock.

    Args:
        clock: tells milliseconds.
        followed_count_max: queues that are remembered; a caller above its share (shares.py) loses its own.
    """

    def __init__(self, clock: StoreClock, followed_count_max: int = FOLLOWED_COUNT_MAX) -> None:
        self._clock = clock
        self._followed: dict[QueueRef, str] = {}  # the member that pulled last
        self._order: KeptKeys[QueueRef] = KeptKeys(followed_count_max)
        self._waiting: dict[QueueRef, tuple[int, int]] = {}  # position, and until when (ms since 1970)

    def note(self, ref: QueueRef, after: int) -> bool:
        """A queue was reset; whether a member has to be told."""
        is_followed = ref in self._followed
        if is_followed:
            self._waiting[ref] = after, self._clock.millis() + TOLD_MILLIS_MAX
        return is_followed

    def ignores(self, ref: QueueRef, member: str) -> bool:
        """Whether a member has not followed a reset of the queue yet, so that its position there has no effect."""
        return self._waits(ref) and self._followed[ref] == member[:MEMBER_CHARACTERS_MAX]

    def moved(self, ref: QueueRef, after: int) -> None:
        """Another than the member that is to follow has moved the group: it follows there."""
        if self._waits(ref):
            self._waiting[ref] = after, self._waiting[ref][1]

    def goes_on_at(
        self, ref: QueueRef, member: str, caller: str, queue_offset: int, consumer_offset: int
    ) -> int | None:
        """Where a member has to go on that pulls at a position; None: where it is."""
        self._followed[ref] = member[:MEMBER_CHARACTERS_MAX]
        too_many = self._order.use(ref, client_of_name(caller))
        if too_many is not None:
            self._order.drop(too_many)
            del self._followed[too_many]
            self._waiting.pop(too_many, None)
        if not self._waits(ref):
            return None
        after, _ = self._waiting[ref]
        if queue_offset in (after, consumer_offset):
            del self._waiting[ref]
            return None
        return after

    def _waits(self, ref: QueueRef) -> bool:
        """Whether no member has followed a reset of the queue yet."""
        found = self._waiting.get(ref)
        if found is not None and found[1] <= self._clock.millis():
            del self._waiting[ref]
            found = None
        return found is not None


@dataclass(frozen=True, slots=True)
class Pulled:
    """Messages of a queue.

    Attributes:
        answer: what is said beside the messages.
        messages: in queue order.
    """

    answer: pb.PullMessagesResponse
    messages: Batch


class Pulls:
    """Serves pulls and positions.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._resets = ToldResets(life.clock)

    def pull(self, request: pb.PullMessagesRequest, seen_offset: int = 0) -> Pulled:
        """Messages from a position on.

        Args:
            request: what is wanted. With `shown_as` the messages are an EncodedBatch, with `as_records` perhaps one of records,
                up to the first that is not ordinary; some positions from there on come as messages, in an answer of their own.
            seen_offset: the service has seen the log up to there (bytes); what is read here may lie behind it.

        Raises:
            InvalidArgumentError, IllegalFilterError: the request is wrong.
            TopicNotReadableError: the topic is configured without the right to read.
            TopicNotFoundError: it has no messages here; with `isAbsent` there is no such topic.
            GroupDisabledError: the group is configured not to consume.
            StoreError: the queue or the log cannot be read.
        """
        topic, queue_id, begin, shown_as = request.topic, request.queue_id, request.queue_offset, request.shown_as
        check_topic_named(topic)
        count_max = count_of(request.max_messages, "max_messages", MESSAGE_COUNT_DEFAULT, MESSAGE_COUNT_MAX)
        body_bytes_left = count_of(request.max_bytes, "max_bytes", BODY_BYTES_DEFAULT, BODY_BYTES_MAX)
        taken = filter_of(request.filter)
        batch: Batch = []
        as_records = request.as_records and bool(shown_as)
        if shown_as:
            batch = EncodedBatch(MessageForm(topic, queue_id, shown_as, as_records))
        has_messages_of_records = False  # messages, although records are asked for
        is_light = is_light_queue(topic)  # it has no topic of its own: a broker answers an unknown one as an empty one
        # An answer has records or messages. All of a light queue come as messages.
        stops_at_messages = as_records and not is_light
        plain_count = count_max if is_light else PLAIN_COUNT
        reader = self._life.reader
        if not request.ignore_perm:
            if not is_light:
                self._life.topics.check_readable(topic)
            group = self._life.states.groups.get(request.consumer_group)
            if group is not None:
                check_consuming(group.settings)
        has_messages = is_light or bool(reader.recent.ends(topic))
        if not request.ignore_perm and not is_light:
            self._life.topics.check_exists(topic, has_messages=has_messages)
        if not has_messages:
            raise TopicNotFoundError(f"topic {topic!r} has no messages in this shard", topic=topic)
        known = reader.range(topic, queue_id)

        def pulled(
            next_offset: int, status: "gateway_pb.PullStatus", *, is_whole: bool = False, is_built: bool = True
        ) -> Pulled:
            answer = pb.PullMessagesResponse(
                next_offset=next_offset,
                min_offset=known.min_offset,
                max_offset=known.max_offset,
                status=status,
                shown_as=shown_as,
                is_whole=is_whole,
                seen_offset=seen_offset if is_built else 0,
            )
            return Pulled(answer, batch)

        if request.follows_resets:
            goes_on_at = self._goes_on_at(request)
            if goes_on_at is not None:
                return pulled(goes_on_at, OFFSET_ILLEGAL)
        status, next_offset = _outside(begin, known)
        if status:
            return pulled(next_offset, status)
        at, scanned = begin, 0
        is_full, is_whole = False, True
        while not is_full and len(batch) < count_max and scanned < SCANNED_UNIT_COUNT_MAX:
            count = count_max - len(batch)
            if isinstance(batch, EncodedBatch) and taken is EVERYTHING and (as_records or count >= ENCODED_COUNT_MIN):
                encoded = reader.encoded(
                    batch.form, at, count, body_bytes_left=body_bytes_left, is_first=not len(batch)
                )
                if encoded is not None:
                    batch.extend(encoded)
                    at += encoded.count
                    scanned += encoded.count
                    is_full, body_bytes_left = encoded.is_full, encoded.body_bytes_left
                    if is_full or encoded.count:
                        continue
                    # What stands here is not ordinary, or not built yet.
                    count = min(count, plain_count)
            elif isinstance(batch, EncodedBatch) and as_records and not has_messages_of_records:
                before = at
                units_left = SCANNED_UNIT_COUNT_MAX - scanned
                at, body_bytes_left, is_full = self._take_records(batch, taken, at, count, units_left, body_bytes_left)
                scanned += at - before
                if is_full or at > before:
                    continue
                count = min(count, plain_count)  # likewise
            if stops_at_messages and batch and (taken is EVERYTHING or has_messages_of_records):
                break
            run = reader.units(topic, queue_id, at, count)
            if not run.units:
                break
            if run.queue_offset > at:
                return pulled(
                    run.queue_offset,
                    FOUND if batch else OFFSET_ILLEGAL,
                )
            wanted = [taken.matches_unit(unit.tags_code) for unit in run.units]
            units = [unit for unit, is_wanted in zip(run.units, wanted, strict=True) if is_wanted]
            # A first message is given whatever its size.
            limit = body_bytes_left if batch else BODY_BYTES_MAX
            outcomes = iter(reader.records(units, limit))
            for is_wanted in wanted:
                if is_wanted:
                    outcome = checked(next(outcomes), topic, queue_id, at)
                    if isinstance(outcome, StoredMessage):
                        if outcome.body_omitted and not batch:
                            if not any(wanted[: at - run.queue_offset]):
                                raise too_large(outcome)
                            break  # those before it, which the filter did not take, had its room: it is read again
                        if outcome.body_omitted or (batch and len(outcome.body) > body_bytes_left):
                            is_full = True
                            break
                        if taken.matches(outcome.tags, outcome.properties):
                            record = (
                                reader.encoded(batch.form, at, 1, body_bytes_left=BODY_BYTES_MAX, is_first=True)
                                if isinstance(batch, EncodedBatch) and as_records and not has_messages_of_records
                                else None
                            )
                            if isinstance(batch, EncodedBatch) and record is not None and record.count:
                                batch.extend(record)
                            elif as_records and batch and not has_messages_of_records:
                                is_full = True  # an answer has either records or messages
                                break
                            else:
                                has_messages_of_records = as_records
                                batch.append(outcome)
                            body_bytes_left -= len(outcome.body)
                    elif not is_removed(outcome):
                        if batch:
                            is_full = True
                            break
                        raise outcome
                    else:
                        is_whole = False
                at += 1
                scanned += 1
            if stops_at_messages and batch and (taken is EVERYTHING or has_messages_of_records):
                break
        if at == begin:
            # Its units are not built yet: RocketMQ's OFFSET_FOUND_NULL, which clients see as this.
            return pulled(at, NO_NEW_MSG, is_built=False)
        return pulled(at, FOUND if batch else NO_MATCHED_MSG, is_whole=is_whole)

    def _take_records(
        self, batch: EncodedBatch, taken: MessageFilter, at: int, count: int, units_left: int, body_bytes_left: int
    ) -> tuple[int, int, bool]:
        """Add records that a filter takes, up to one that is not ordinary.

        Records that lie between those whose units match, and near them, are read with them: a call of the kernel costs as much
        as a few records.

        Args:
            batch: gets them.
            taken: the filter.
            at: position of the first unit to look at.
            count: how many are added at most.
            units_left: how many units are looked at, at most.
            body_bytes_left: bytes of bodies.

        Returns:
            The position behind what was looked at; the bytes of bodies that are left; whether the next one has no room.
        """
        reader, form = self._life.reader, batch.form
        run = reader.units(form.topic, form.queue_id, at, min(units_left, CANDIDATE_FACTOR * count))
        if run.queue_offset != at:
            return at, body_bytes_left, False
        matching = [number for number, unit in enumerate(run.units) if taken.matches_unit(unit.tags_code)]
        end = len(run.units) if len(matching) <= count else matching[count]
        for numbers in _near(matching[:count]):
            first, last = numbers[0], numbers[-1]
            encoded = reader.encoded(form, at + first, last + 1 - first, body_bytes_left=BODY_BYTES_MAX, is_first=True)
            if encoded is None:
                return at + first, body_bytes_left, False
            fields = fields_of(b"".join(encoded.data))
            for number in numbers:
                if number - first >= encoded.count:
                    break
                field, begin = fields[number - first]
                body_size_bytes, properties = locate_properties(field, begin)
                named = parse_properties(properties)
                if not taken.matches(named.get(TAGS, ""), named):
                    continue
                if len(batch) and body_size_bytes > body_bytes_left:
                    return at + number, body_bytes_left, True
                batch.add(field)
                body_bytes_left -= body_size_bytes
            if encoded.count < last + 1 - first:
                return at + first + encoded.count, body_bytes_left, False
        return at + end, body_bytes_left, False

    def commit(
        self,
        consumer_group: str,
        offsets: Sequence[tuple[str, int, int]],
        caller: str = "",
        *,
        member: str = "",
        begins: bool = False,
        known_only: bool = False,
    ) -> None:
        """Set positions, given as topic, queue and position. In the log when this returns; errors as Life.group.

        Those of a member that has not followed a reset yet have no effect; see ToldResets.

        With `begins` the group begins there: positions that it has are kept, and what lies before these is skipped. With
        `known_only` GroupNotFoundError for a group that is not known.

        While a member of the group pulls, and the group does not pop the topic by its request mode, a position inside of what
        pops have handed out says how far that member has read: what is in flight before it is consumed, and what is behind it
        stays as it is (ADR 0138). Any other position moves the group.
        """
        if not 1 <= len(offsets) <= OFFSET_COUNT_MAX:
            raise InvalidArgumentError(f"{len(offsets)} offsets: 1 to {OFFSET_COUNT_MAX} are possible", field="offsets")
        for topic, queue_id, queue_offset in offsets:
            if (
                not topic
                or len(topic) > TOPIC_LENGTH_MAX
                or not 0 <= queue_id < TOPIC_QUEUE_COUNT_MAX
                or queue_offset < 0
            ):
                raise InvalidArgumentError(
                    f"topic {topic[:64]!r}, queue {queue_id}, offset {queue_offset}: none may be empty, negative or too large",
                    field="offsets",
                )
        life = self._life
        life.refuse_if_over()
        with life.lock:
            if known_only:
                life.check_known(consumer_group)
            settings = life.group(consumer_group, caller).settings
            moves = [
                Moved(QueueRef(consumer_group, topic, queue_id), at, is_reset=begins) for topic, queue_id, at in offsets
            ]
            has_pullers = life.clients.has_pullers(consumer_group)
            news = [
                move
                for move in moves
                if self._is_news(move) and not (has_pullers and self._resets.ignores(move.queue, member))
            ]
            if begins:
                news = [move for move in news if life.states.find(move.queue) is None]
            if any(life.states.find(move.queue) is None for move in news):
                life.check_room(consumer_group)
            changes: list[Moved | Ended] = [*news]
            if news and not begins and has_pullers:
                changes = self._passed(news, settings)
            for change in changes:
                if isinstance(change, Moved):
                    self._resets.moved(change.queue, change.next_offset)
            # A position that is known may still be under way.
            written = life.change(changes) if changes else life.newest_write()
            for topic in {change.queue.topic for change in changes}:
                life.note_again(QueueRef(consumer_group, topic, 0))
        wait_for(written)

    def begin(self, consumer_group: str, topic: str, queue_offsets: Sequence[int], *, known_only: bool = False) -> None:
        """As `commit` with `begins`, by queue, from queue 0 on, -1: nothing there. In the log as a whole when this returns."""
        if (
            not 1 <= len(topic) <= TOPIC_LENGTH_MAX
            or not 1 <= len(queue_offsets) <= TOPIC_QUEUE_COUNT_MAX
            or min(queue_offsets) < -1
        ):
            raise InvalidArgumentError(
                f"topic {topic[:64]!r} with {len(queue_offsets)} queues: name it, with positions of -1 or more in 1 to "
                f"{TOPIC_QUEUE_COUNT_MAX} queues",
                field="beginning",
            )
        life = self._life
        life.refuse_if_over()
        with life.lock:
            if known_only:
                life.check_known(consumer_group)
            life.group(consumer_group, caller="")
            life.check_room(consumer_group)
            written = life.change([Began(consumer_group, topic, queue_offsets)])
            life.note_again(QueueRef(consumer_group, topic, 0))
        wait_for(written)

    def offsets(self, consumer_group: str, topic: str) -> Sequence[tuple[QueueRef, int]]:
        """The positions of a group, by topic and queue; of all topics when `topic` is empty."""
        life = self._life
        with life.lock:
            group = life.states.groups.get(consumer_group)
            if group is None:
                return []
            if is_light_queue(topic):
                state = life.states.find(ref := QueueRef(consumer_group, topic, 0))
                return [] if state is None else [(ref, state.consumer_offset)]
            return [(ref, state.consumer_offset) for ref, state in group.shown_queues() if topic in ("", ref.topic)]

    def reset(
        self,
        consumer_group: str,
        topic: str,
        targets: Mapping[int, int],
        *,
        dry_run: bool,
        caller: str = "",
        known_only: bool = False,
    ) -> Sequence[pb.ResetOffsetsResponse.Reset]:
        """Move a group to positions of a topic, given by queue; they are clamped to the queues' ranges.

        A group that never consumed is made, unless `known_only`: then GroupNotFoundError. Other errors as Life.group.
        """
        life = self._life
        if not dry_run:
            life.refuse_if_over()
        clamped: dict[int, int] = {}
        for queue_id, target in targets.items():
            known = life.reader.range(topic, queue_id)
            clamped[queue_id] = max(known.min_offset, min(target, known.max_offset))
        with life.lock:
            resets: list[pb.ResetOffsetsResponse.Reset] = []
            for queue_id, after in sorted(clamped.items()):
                state = life.states.find(QueueRef(consumer_group, topic, queue_id))
                before = None if state is None else state.consumer_offset
                resets.append(pb.ResetOffsetsResponse.Reset(queue_id=queue_id, before=before, after=after))
            if dry_run or not resets:
                return resets
            if known_only:
                life.check_known(consumer_group)
            life.group(consumer_group, caller)
            if any(not one.HasField("before") for one in resets):
                life.check_room(consumer_group)
            written = life.change(
                [Moved(QueueRef(consumer_group, topic, one.queue_id), one.after, is_reset=True) for one in resets]
            )
            life.arrivals.note_group(consumer_group, topic)
            told = [self._resets.note(QueueRef(consumer_group, topic, one.queue_id), one.after) for one in resets]
            if any(told):
                life.arrivals.note_topics((topic,))  # pulls that wait look again, and are told
        wait_for(written)
        return resets

    def _goes_on_at(self, request: pb.PullMessagesRequest) -> int | None:
        life = self._life
        ref = QueueRef(request.consumer_group, request.topic, request.queue_id)
        with life.lock:
            if ref.consumer_group not in life.states.groups:
                return None  # callers invent names, and a group that is not known was not reset
            state = life.states.find(ref)
            consumer_offset = -1 if state is None else state.consumer_offset
            return self._resets.goes_on_at(ref, request.member, request.caller, request.queue_offset, consumer_offset)

    def _passed(self, moves: Sequence[Moved], settings: GroupSettings) -> list[Moved | Ended]:
        """What positions of a member that pulls change."""
        changes: list[Moved | Ended] = []
        for move in moves:
            # Push consumers in POP mode seem to pull the topic: they pull `%RETRY%group`.
            is_popped = settings.pops(popped_topic_of(settings.consumer_group, move.queue.topic))
            state = self._life.states.find(move.queue) if not is_popped else None
            passed = state.passed_by(move.next_offset) if state is not None else None
            if passed is None:
                changes.append(move)
            else:
                begins = range(0, len(passed), ENDED_COUNT_MAX)
                changes += [Ended(move.queue, passed[at : at + ENDED_COUNT_MAX]) for at in begins]
        return changes

    def _is_news(self, move: Moved) -> bool:
        state = self._life.states.find(move.queue)
        return state is None or state.consumer_offset != move.next_offset


def _near(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Rising numbers in groups, each no more than NEAR_COUNT behind the one before it."""
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] - numbers[place - 1] > NEAR_COUNT:
            yield numbers[begin:place]
            begin = place


def _outside(queue_offset: int, known: QueueRange) -> "tuple[gateway_pb.PullStatus, int]":
    """Status and next offset of a position that has no message; an unspecified status for one that has."""
    if known.max_offset == 0:
        return (NO_NEW_MSG, 0) if queue_offset == 0 else (OFFSET_ILLEGAL, 0)
    if queue_offset < known.min_offset:
        return OFFSET_ILLEGAL, known.min_offset
    if queue_offset == known.max_offset:
        return NO_NEW_MSG, queue_offset
    if queue_offset > known.max_offset:
        return OFFSET_ILLEGAL, known.max_offset
    return gateway_pb.PULL_STATUS_UNSPECIFIED, queue_offset
