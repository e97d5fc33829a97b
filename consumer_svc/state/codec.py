"""Changes and full states as `reput.consumer.v1.StateRecord`, the body of a record of the state topic, and back."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, groupby, islice, starmap

from consumer_svc.state.group_states import (
    Began,
    Change,
    Group,
    GroupDeleted,
    GroupSet,
    GroupSettings,
    GroupStates,
    LightPosition,
    LiteExpired,
    RequestMode,
    light_state,
)
from consumer_svc.state.lite_subscriptions import LiteSubscribed
from consumer_svc.state.queue_state import (
    Delivered,
    Ended,
    HandedOut,
    Hidden,
    Lease,
    Moved,
    Postponed,
    QueueRef,
    QueueState,
    Released,
    Returned,
)
from reput.consumer.v1 import consumer_service_pb2 as service_pb
from reput.consumer.v1 import state_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.format.delivery.consumer_files import PRIORITY_FACTOR_MAX, LiteConfig
from store.format.topic import LIGHT_QUEUE_PREFIX, lite_parent_of, lite_queue_name, lite_topic_of

# A piece of a full state; a record must stay far below the limit of a message (4 MiB).
PIECE_BYTES_MAX = 1 << 20
# Leases, and waiting messages, of a part of a queue: some 300 bytes each.
PART_COUNT_MAX = 1_000
# Names of light queues in a message of a record: at most 255 bytes each, most have 50.
LIGHT_COUNT_MAX = 5_000


def change_to_proto(change: Change) -> pb.Change:
    """One change for a record."""
    match change:
        case HandedOut():
            return pb.Change(
                handed_out=pb.HandedOut(
                    queue=_ref(change.queue),
                    next_offset=change.next_offset,
                    leases=map(_lease, change.leases),
                    passed=map(_waiting, change.passed),
                )
            )
        case Delivered():
            return pb.Change(delivered=pb.Delivered(queue=_ref(change.queue), queue_offsets=change.queue_offsets))
        case Ended():
            return pb.Change(
                ended=pb.Ended(queue=_ref(change.queue), queue_offsets=change.queue_offsets, moved=change.moved)
            )
        case Hidden():
            return pb.Change(
                hidden=pb.Hidden(
                    queue=_ref(change.queue),
                    queue_offset=change.queue_offset,
                    invisible_until_millis=change.invisible_until_millis,
                    is_released=change.is_released,
                )
            )
        case Released():
            return pb.Change(released=pb.Released(queue=_ref(change.queue), queue_offsets=change.queue_offsets))
        case Returned():
            return pb.Change(returned=pb.Returned(queue=_ref(change.queue), waiting=map(_waiting, change.waiting)))
        case Moved():
            return pb.Change(
                moved=pb.Moved(queue=_ref(change.queue), next_offset=change.next_offset, is_reset=change.is_reset)
            )
        case GroupSet():
            return pb.Change(group_set=_settings(change.settings, change.made_by))
        case Began():
            beginning = service_pb.Beginning(topic=change.topic, queue_offsets=change.queue_offsets)
            return pb.Change(began=pb.Began(consumer_group=change.consumer_group, beginning=beginning))
        case GroupDeleted():
            return pb.Change(group_deleted=pb.GroupDeleted(consumer_group=change.consumer_group))
        case LiteSubscribed():
            return pb.Change(lite_subscribed=_subscribed(change))
        case LiteExpired():
            return pb.Change(lite_expired=_expired(change))


def change_from_proto(change: pb.Change) -> Change | None:
    """One change of a record; None for one of a later version."""
    match change.WhichOneof("change"):
        case "handed_out":
            out = change.handed_out
            leases, passed = [_to_lease(one) for one in out.leases], [_to_waiting(one) for one in out.passed]
            return HandedOut(_to_ref(out.queue), out.next_offset, leases, passed)
        case "delivered":
            return Delivered(_to_ref(change.delivered.queue), tuple(change.delivered.queue_offsets))
        case "ended":
            return Ended(_to_ref(change.ended.queue), tuple(change.ended.queue_offsets), change.ended.moved)
        case "hidden":
            hidden = change.hidden
            until = hidden.invisible_until_millis
            return Hidden(_to_ref(hidden.queue), hidden.queue_offset, until, hidden.is_released)
        case "released":
            return Released(_to_ref(change.released.queue), tuple(change.released.queue_offsets))
        case "returned":
            return Returned(_to_ref(change.returned.queue), [_to_waiting(one) for one in change.returned.waiting])
        case "moved":
            return Moved(_to_ref(change.moved.queue), change.moved.next_offset, change.moved.is_reset)
        case "group_set":
            return GroupSet(_to_settings(change.group_set), change.group_set.made_by)
        case "began":
            beginning = change.began.beginning
            return Began(change.began.consumer_group, beginning.topic, tuple(beginning.queue_offsets))
        case "group_deleted":
            return GroupDeleted(change.group_deleted.consumer_group)
        case "lite_subscribed":
            return _to_subscribed(change.lite_subscribed)
        case "lite_expired":
            return to_expired(change.lite_expired)
        case _:
            return None


def pieces_of(states: GroupStates) -> Iterator[Sequence[pb.GroupState]]:
    """The full state in pieces below PIECE_BYTES_MAX, without those of `light_pieces` and `floors_of`.

    A queue with much in flight is divided over several.
    """
    piece: list[pb.GroupState] = []
    size_bytes = 0
    for _, group in sorted(states.groups.items()):
        state = pb.GroupState(settings=_settings(group.settings, group.made_by))
        for queue in _queues(group):
            queue_bytes = queue.ByteSize()
            if size_bytes + queue_bytes > PIECE_BYTES_MAX and (piece or state.queues):
                yield [*piece, state]
                piece, size_bytes = [], 0
                state = pb.GroupState(settings=state.settings)
            state.queues.append(queue)
            size_bytes += queue_bytes
        piece.append(state)
        size_bytes += state.settings.ByteSize()
    if piece:
        yield piece


def light_pieces(states: GroupStates) -> Iterator[Sequence[pb.GroupState]]:
    """The positions in light queues where nothing is in flight, and subscriptions, in pieces as those of `pieces_of`.

    They are taken now, and made into pieces when these are asked for: there may be a million, and the caller holds a lock.
    """
    taken = [
        (_settings(group.settings, group.made_by), list(group.light.items()))
        for group in states.groups.values()
        if group.light
    ]
    subscribed = [
        (
            _settings(group.settings, group.made_by),
            [(client_id, client.is_wildcard, list(client.queues)) for client_id, client in group.lite.clients.items()],
        )
        for group in states.groups.values()
        if group.lite.clients
    ]
    return chain(
        chain.from_iterable(starmap(_light_pieces, taken)), chain.from_iterable(starmap(_subscriptions, subscribed))
    )


def floors_of(states: GroupStates) -> Iterator[Sequence[pb.LiteExpired]]:
    """The lite topics that are forgotten, in pieces as those of `pieces_of`."""
    by_place: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for queue, (queue_offset, commit_log_offset) in states.lite_floors.items():
        by_place.setdefault((lite_parent_of(queue), commit_log_offset), []).append((queue, queue_offset))
    for (topic, commit_log_offset), rows in by_place.items():
        for begin in range(0, len(rows), LIGHT_COUNT_MAX):
            queues, queue_offsets = zip(*rows[begin : begin + LIGHT_COUNT_MAX], strict=True)
            yield [_expired(LiteExpired(topic, queues, queue_offsets, commit_log_offset))]


def apply_floors(states: GroupStates, floors: Iterable[pb.LiteExpired]) -> None:
    """Add a piece of `floors_of`: groups have what the other pieces say."""
    for expired in map(to_expired, floors):
        for queue, queue_offset in zip(expired.queues, expired.queue_offsets, strict=False):
            states.lite_floors[queue] = (queue_offset, expired.commit_log_offset)


def apply_piece(states: GroupStates, groups: Iterable[pb.GroupState]) -> None:
    """Add a piece of a full state."""
    for group in groups:
        states.apply(GroupSet(_to_settings(group.settings), group.settings.made_by))
        for queue in group.queues:
            state = states.queue(_to_ref(queue.queue))
            state.next_offset = queue.next_offset
            # A state of an older release: nothing is known to be popped, so a position moves the group.
            state.popped_from = queue.popped_from if queue.HasField("popped_from") else queue.next_offset
            # Added, not replaced: the piece may hold a part of the queue, and says only what the changes before it say.
            state.leases.update((lease.queue_offset, _to_lease(lease)) for lease in queue.leases)
            state.waiting.update((waiting.queue_offset, _to_waiting(waiting)) for waiting in queue.waiting)
            state.moved.update(dict.fromkeys(queue.moved_offsets))
            offsets = queue.reset_offsets
            state.resets = list(zip(offsets[::2], offsets[1::2], strict=False))
            if queue.queue.topic.startswith(LIGHT_QUEUE_PREFIX):
                states.rest(_to_ref(queue.queue), state)
        for subscribed in group.lite_subscriptions:
            states.apply(_to_subscribed(subscribed))
        light = states.groups[group.settings.consumer_group].light
        for positions in group.light_positions:
            names = (sys.intern(LIGHT_QUEUE_PREFIX + name) for name in positions.queues)
            light.update(zip(names, positions.next_offsets, strict=False))


def _queues(group: Group) -> Iterator[pb.QueueState]:
    for ref, queue in group.queues():
        yield from _parts(ref, queue)


def _parts(ref: QueueRef, queue: QueueState) -> Iterator[pb.QueueState]:
    leases, waiting = list(queue.leases.values()), list(queue.waiting.values())
    for begin in range(0, max(len(leases), len(waiting), 1), PART_COUNT_MAX):
        yield pb.QueueState(
            queue=_ref(ref),
            next_offset=queue.next_offset,
            popped_from=queue.popped_from,
            leases=map(_lease, leases[begin : begin + PART_COUNT_MAX]),
            waiting=map(_waiting, waiting[begin : begin + PART_COUNT_MAX]),
            reset_offsets=[offset for reset in queue.resets for offset in reset],
            moved_offsets=queue.moved if begin == 0 else (),
        )


def _subscriptions(
    settings: pb.GroupSet, clients: Sequence[tuple[str, bool, Sequence[str]]]
) -> Iterator[Sequence[pb.GroupState]]:
    """What the clients of a group subscribe to, in pieces.

    None of them takes anything away, for a piece may be the last one that was written, and then has to change nothing.
    """
    name, topic = settings.consumer_group, settings.lite.bind_topic
    state, size_bytes = pb.GroupState(settings=settings), 0
    for client_id, is_wildcard, queues in sorted(clients):
        parts = [LiteSubscribed(name, topic, client_id, is_wildcard=is_wildcard)]
        for parent, of_parent in groupby(sorted(queues), key=lite_parent_of):
            while part := list(islice(of_parent, LIGHT_COUNT_MAX)):
                parts.append(LiteSubscribed(name, parent, client_id, part, is_wildcard=is_wildcard))
        for lite in map(_subscribed, parts):
            lite_bytes = lite.ByteSize()
            if size_bytes and size_bytes + lite_bytes > PIECE_BYTES_MAX:
                yield [state]
                state, size_bytes = pb.GroupState(settings=settings), 0
            state.lite_subscriptions.append(lite)
            size_bytes += lite_bytes
    yield [state]


def _light_pieces(
    settings: pb.GroupSet, light: Sequence[tuple[str, LightPosition]]
) -> Iterator[Sequence[pb.GroupState]]:
    for begin in range(0, len(light), LIGHT_COUNT_MAX):
        part = light[begin : begin + LIGHT_COUNT_MAX]
        state = pb.GroupState(settings=settings)
        numbers = [(queue, at) for queue, at in part if isinstance(at, int)]
        state.light_positions.add(
            queues=[queue.removeprefix(LIGHT_QUEUE_PREFIX) for queue, _ in numbers],
            next_offsets=[at for _, at in numbers],
        )
        for queue, at in part:
            if not isinstance(at, int):
                state.queues.extend(_parts(QueueRef(settings.consumer_group, queue, 0), light_state(at)))
        yield [state]


def _subscribed(change: LiteSubscribed) -> pb.LiteSubscribed:
    return pb.LiteSubscribed(
        consumer_group=change.consumer_group,
        topic=change.topic,
        client_id=change.client_id,
        added=map(lite_topic_of, change.added),
        removed=map(lite_topic_of, change.removed),
        is_complete=change.is_complete,
        is_wildcard=change.is_wildcard,
        is_ended=change.is_ended,
    )


def _to_subscribed(change: pb.LiteSubscribed) -> LiteSubscribed:
    return LiteSubscribed(
        change.consumer_group,
        change.topic,
        change.client_id,
        tuple(sys.intern(lite_queue_name(change.topic, each)) for each in change.added),
        tuple(lite_queue_name(change.topic, each) for each in change.removed),
        change.is_complete,
        change.is_wildcard,
        change.is_ended,
    )


def _expired(change: LiteExpired) -> pb.LiteExpired:
    return pb.LiteExpired(
        topic=change.topic,
        lite_topics=map(lite_topic_of, change.queues),
        queue_offsets=change.queue_offsets,
        commit_log_offset=change.commit_log_offset,
    )


def to_expired(change: pb.LiteExpired) -> LiteExpired:
    """Lite topics of a record that are forgotten."""
    queues = tuple(sys.intern(lite_queue_name(change.topic, each)) for each in change.lite_topics)
    return LiteExpired(change.topic, queues, tuple(change.queue_offsets), change.commit_log_offset)


def _ref(ref: QueueRef) -> pb.QueueRef:
    return pb.QueueRef(consumer_group=ref.consumer_group, topic=ref.topic, queue_id=ref.queue_id)


def _to_ref(ref: pb.QueueRef) -> QueueRef:
    return QueueRef(ref.consumer_group, ref.topic, ref.queue_id)


def _lease(lease: Lease) -> pb.Lease:
    return pb.Lease(
        queue_offset=lease.queue_offset,
        delivery_number=lease.delivery_number,
        uncounted=lease.uncounted,
        invisible_until_millis=lease.invisible_until_millis,
        renew_until_millis=lease.renew_until_millis,
        client_id=lease.client_id,
        attempt_id=lease.attempt_id,
        message_group=lease.message_group,
        is_delivered=lease.is_delivered,
        serial=lease.serial,
        is_released=lease.is_released,
    )


def _to_lease(lease: pb.Lease) -> Lease:
    return Lease(
        lease.queue_offset,
        lease.delivery_number,
        lease.uncounted,
        lease.invisible_until_millis,
        lease.renew_until_millis,
        lease.client_id,
        lease.attempt_id,
        lease.message_group,
        lease.is_delivered,
        serial=lease.serial,
        is_released=lease.is_released,
    )


def _waiting(waiting: Postponed) -> pb.Waiting:
    return pb.Waiting(
        queue_offset=waiting.queue_offset,
        delivery_number=waiting.delivery_number,
        uncounted=waiting.uncounted,
        message_group=waiting.message_group,
        visible_millis=waiting.visible_millis,
    )


def _to_waiting(waiting: pb.Waiting) -> Postponed:
    return Postponed(
        waiting.queue_offset,
        waiting.delivery_number,
        waiting.uncounted,
        waiting.message_group,
        waiting.visible_millis,
    )


def _settings(settings: GroupSettings, made_by: str) -> pb.GroupSet:
    return pb.GroupSet(
        consumer_group=settings.consumer_group,
        ordered=settings.ordered,
        delivery_attempts_max=settings.delivery_attempts_max,
        consume_enabled=settings.consume_enabled,
        broadcast=settings.broadcast,
        request_modes=map(mode_to_proto, settings.request_modes),
        priority_factor=said_factor(settings),
        lite=lite_to_proto(settings.lite),
        made_by=made_by,
    )


def _to_settings(group: pb.GroupSet) -> GroupSettings:
    return GroupSettings(
        group.consumer_group,
        group.ordered,
        group.delivery_attempts_max,
        group.consume_enabled,
        group.broadcast,
        tuple(map(mode_of, group.request_modes)),
        factor_of(group),
        lite_of(group),
    )


def lite_to_proto(lite: LiteConfig | None) -> gateway_pb.LiteSettings | None:
    """What a group of lite topics is, for records and answers."""
    return None if lite is None else gateway_pb.LiteSettings(**asdict(lite))


def lite_of(settings: "pb.GroupSet | service_pb.GroupSettings") -> LiteConfig | None:
    """What a record or a request says of lite topics."""
    return LiteConfig.like(settings.lite) if settings.HasField("lite") else None


def said_factor(settings: GroupSettings) -> int | None:
    """The priority factor of settings as records and answers say it: nothing for the default."""
    return None if settings.priority_factor == PRIORITY_FACTOR_MAX else settings.priority_factor


def factor_of(settings: "pb.GroupSet | service_pb.GroupSettings") -> int:
    """The priority factor that a record or a request says."""
    return settings.priority_factor if settings.HasField("priority_factor") else PRIORITY_FACTOR_MAX


def mode_to_proto(mode: RequestMode) -> service_pb.RequestMode:
    """A request mode, for records and answers."""
    return service_pb.RequestMode(
        topic=mode.topic, is_pop=mode.is_pop, pop_share_queue_count=mode.pop_share_queue_count
    )


def mode_of(mode: service_pb.RequestMode) -> RequestMode:
    """A request mode of a record or request."""
    return RequestMode(mode.topic, mode.is_pop, mode.pop_share_queue_count)
