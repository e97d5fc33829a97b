"""CourtesyFiles: RocketMQ's `consumerOffset.json` and `subscriptionGroup.json`, kept so that a real broker can take over;
and `messageRequestMode.json` where groups have modes.

They are read when a broker has written them since: then its positions count, what was in flight here is forgotten, and what the
broker had in flight is in flight here. With the positions go checkpoints in the revive topic of the broker's cluster; see
Plan. They are in the log before the file that counts on them is written.

With `enableLmq` a broker has `lmqConsumerOffset.json` in place of the first. Where there is one it is read and kept in the same
way. Positions in light queues, of which there may be a million, are written into it when the life ends, and only then.

A broker keeps its positions among the half messages in `consumerOffset.json`, too. They belong to the schedule service, which
says them in `delayOffset.json`: one service writes one file. They only go forward.

BrokerGroups: what a broker's files say of its consumer groups, as changes of our state.

`subscriptionGroup.json` has the groups, `consumerOffset.json` or `lmqConsumerOffset.json` their positions; what is in flight
by POP stands in checkpoints of the log (`broker_pops.py`). BrokerGroups keeps up with a broker that runs beside this
service: it writes its positions every 5 s (flushConsumerOffsetInterval), in place. So a file may be read half written; then
the state stays as it is until the next look.

Plan: what RocketMQ's files and its revive topic must say so that a broker goes on where the groups are; pure.

                 offset in the file        next_offset
        open  done  open  done │ open  open │ never handed out
    ──────┼─────┼─────┼─────┼──┼─────┼──────┼──────────────────
        checkpoint  checkpoint    come again by the offset

`consumerOffset.json` has one number for a queue. With the lowest position that is not consumed, everything acknowledged behind
it would come again. So the number is the lowest position behind which nothing is consumed, and what is open before it becomes a
checkpoint, as if the broker itself had handed it out and its time was over: it comes again by the group's retry topic. What no
program got has `sp` there: since 5.5 a broker does not count such a delivery.

An ordered group has no checkpoints in RocketMQ: its number is the lowest position that is not consumed.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from consumer_svc.delivering.life import Life
from consumer_svc.handover.broker_pops import read_in_flight
from consumer_svc.state.group_states import Change, GroupDeleted, GroupSet, GroupSettings, GroupStates, RequestMode
from consumer_svc.state.queue_state import HandedOut, Lease, Moved, Postponed, QueueRef, QueueState
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult
from services.calling.commitlog import CommitLogClient
from services.following.state_topic.state_writer import wait_for
from store.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
    StoreCorruptedError,
    StoreError,
    failure_fields,
)
from store.files.config_file import ConfigFile
from store.format.config_json import is_own
from store.format.delivery.consumer_files import (
    GroupConfig,
    ModeTable,
    OffsetTable,
    decode_groups,
    decode_modes,
    decode_offsets,
    encode_groups,
    encode_modes,
    encode_offsets,
    joined_offsets,
)
from store.format.delivery.delay_offset_file import TRANSACTION_GROUP, decode_transaction_offsets
from store.format.delivery.pop_records import (
    CHECK_POINT_COUNT_MAX,
    CHECK_POINT_TAG,
    DELIVERED_BEFORE_MILLIS,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    TIMER_DELIVER_MS,
    CheckPoint,
    encode_check_point,
)
from store.format.properties import TAGS
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC, is_light_queue

REVIVE_QUEUE = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """See the top of this file.

    Attributes:
        offsets: for the file, by group and topic, then by queue.
        open: positions that need a checkpoint, by queue.
        unattempted: those of them that no program got, by queue; other queues are left out.
    """

    offsets: dict[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    open: dict[QueueRef, Sequence[int]] = field(default_factory=dict)
    unattempted: dict[QueueRef, frozenset[int]] = field(default_factory=dict)


def plan_of(states: GroupStates, *, with_light: bool = True) -> Plan:
    """The plan for the state as it is now; without `with_light` light queues in which nothing is in flight are left out."""
    plan = Plan()
    for name, group in states.groups.items():
        for topic, queues in group.topics.items():
            offsets: dict[int, int] = {}
            for queue_id, queue in queues.items():
                is_ordered = group.settings.ordered or is_light_queue(topic)
                offset = queue.consumer_offset if is_ordered else _offset(queue)
                offsets[queue_id] = offset
                behind = sorted(at for at in itertools.chain(queue.leases, queue.waiting) if at < offset)
                if behind:
                    ref = QueueRef(name, topic, queue_id)
                    plan.open[ref] = behind
                    known: dict[int, Lease | Postponed] = {**queue.leases, **queue.waiting}
                    unattempted = frozenset(at for at in behind if not known[at].attempt_count)
                    if unattempted:
                        plan.unattempted[ref] = unattempted
            plan.offsets[name, topic] = offsets
        for topic, position in group.light.items() if with_light else ():
            plan.offsets[name, topic] = {0: position if isinstance(position, int) else position[0]}
    return plan


def check_points(plan: Plan, revive_topic: str, broker_name: str, now_millis: int) -> list[InternalRecord]:
    """The records of a plan for a revive topic, whose time is over now (ms since 1970).

    Times in the future would not do: a broker looks at the records of a revive topic in their order and waits for the first.
    """
    records: list[InternalRecord] = []
    for ref, is_suspended, some in _parts(plan):
        popped = now_millis - DELIVERED_BEFORE_MILLIS
        point = CheckPoint(
            ref.consumer_group,
            ref.topic,
            ref.queue_id,
            some[0],
            popped,
            DELIVERED_BEFORE_MILLIS,
            some,
            is_suspended=is_suspended,
        )
        records.append(
            InternalRecord(
                topic=revive_topic,
                queue_id=REVIVE_QUEUE,
                body=encode_check_point(point, broker_name),
                properties={TAGS: CHECK_POINT_TAG, TIMER_DELIVER_MS: str(popped)},
            )
        )
    return records


def _parts(plan: Plan) -> Iterator[tuple[QueueRef, bool, Sequence[int]]]:
    """The positions that each checkpoint names, and whether these messages were not attempted."""
    for ref, offsets in plan.open.items():
        unattempted = plan.unattempted.get(ref, frozenset())
        for is_suspended in (False, True):
            chosen = [at for at in offsets if (at in unattempted) is is_suspended]
            for begin in range(0, len(chosen), CHECK_POINT_COUNT_MAX):
                yield ref, is_suspended, chosen[begin : begin + CHECK_POINT_COUNT_MAX]


def _has_light(states: GroupStates) -> bool:
    """Whether a group has a position in a light queue."""
    return any(group.light or any(map(is_light_queue, group.topics)) for group in states.groups.values())


def _offset(queue: QueueState) -> int:
    """The lowest position behind which nothing is consumed."""
    offset = queue.next_offset
    while offset - 1 in queue.leases or offset - 1 in queue.waiting:
        offset -= 1
    return offset


OFFSETS, GROUPS = "consumerOffset.json", "subscriptionGroup.json"
# With `enableLmq` a broker keeps the positions of all topics here, and does not write the other file.
LIGHT_OFFSETS = "lmqConsumerOffset.json"
# How groups get the messages of topics; written once a group has said it.
MODES = "messageRequestMode.json"
CALL_SECONDS = 5.0
LOOK_SECONDS = 2.5  # twice as often as a broker writes its positions
# A lease from a broker has had one delivery there.
FIRST_DELIVERY = 1

_log = structlog.get_logger("reput.consumer")


class ConfigReader(Protocol):
    """Reads a file of `config/`, as the client of the commit log does."""

    def read_config(self, name: str, *, timeout_seconds: float) -> ConfigFile:
        """The file, or what is used in its place where it is missing or damaged."""


def read_known(files: ConfigReader, name: str) -> ConfigFile | None:
    """A file of `config/`; None: the commit log is of an earlier release, which does not know this file."""
    try:
        return files.read_config(name, timeout_seconds=CALL_SECONDS)
    except InvalidArgumentError:
        return None


class BrokerGroups:
    """Keeps the state of a life equal to the files of a broker that runs; one thread.

    Args:
        files: reads the files.
    """

    def __init__(self, files: ConfigReader) -> None:
        self._files = files
        self._seen: list[bytes | None] | None = None
        self._newest_millis = 0

    def read(self, life: Life, newest_millis: int, *, is_later: bool = False) -> None:
        """Take the groups and positions of the files, if they are others than at the last call.

        Args:
            life: whose state it is; nothing else changes it.
            newest_millis: when the newest record was stored (ms since 1970); 0: none came since the last call.
            is_later: not at the start of a life: then what is known counts more than what is used of a damaged file.

        Raises:
            StoreError: a file or a checkpoint cannot be read.
            StoreCorruptedError: `is_later`, and a file is half written, or damaged; nothing was changed.
        """
        self._newest_millis = max(newest_millis, self._newest_millis)
        names = (GROUPS, OFFSETS, LIGHT_OFFSETS)
        files = [read_known(self._files, name) or ConfigFile(None) for name in names]
        if is_later:
            for file in files:
                if file.problem:
                    raise StoreCorruptedError(file.problem, file="config")
        contents = [file.content for file in files]
        if contents == self._seen:
            return
        groups = contents[0]
        named = set(decode_groups(groups)) if groups else set()
        table = joined_offsets(decode_offsets(offsets, with_light=True) for offsets in contents[1:] if offsets)
        named.update(group for group, _ in table)
        changes: list[Change] = [*group_changes(life, groups), *position_changes(life, table, self._newest_millis)]
        changes += [GroupDeleted(name) for name in life.states.groups if name not in named]
        with life.lock:
            for change in changes:
                life.states.apply(change)
        self._seen = contents

    def read_again(self, life: Life, newest_millis: int) -> None:
        """As `read`, while the broker writes: what cannot be read now is read at the next call."""
        try:
            self.read(life, newest_millis, is_later=True)
        except (StoreCorruptedError, OffsetOutOfRangeError, RecordNotFoundError) as error:
            _log.info("groups.not_read", error=error.message)


def group_changes(life: Life, groups: bytes | None, *, is_backup: bool = False) -> Iterator[Change]:
    """The changes that make the groups those of `subscriptionGroup.json`, unless it is ours; a `.bak` only adds groups."""
    if groups and not is_own(groups):
        for name, config in decode_groups(groups).items():
            settings = GroupSettings(
                name,
                config.ordered,
                config.retry_count_max + 1,
                config.consume_enabled,
                priority_factor=config.priority_factor,
                lite=config.lite,
            )
            known = life.states.groups.get(name)
            if known is not None:  # the file does not say them
                settings = replace(settings, request_modes=known.settings.request_modes)
            if known is None or (known.settings != settings and not is_backup):
                yield GroupSet(settings)


def mode_changes(life: Life, content: bytes | None, before: Sequence[Change]) -> Iterator[Change]:
    """The changes behind others that make the modes of all groups those of `messageRequestMode.json`, unless it is ours."""
    if not content or is_own(content):
        return
    settings = {name: group.settings for name, group in life.states.groups.items()}
    settings |= {one.settings.consumer_group: one.settings for one in before if isinstance(one, GroupSet)}
    modes: dict[str, list[RequestMode]] = {}
    for (group, topic), (is_pop, share) in sorted(decode_modes(content).items()):
        modes.setdefault(group, []).append(RequestMode(topic, is_pop, share))
    for name in settings.keys() | modes.keys():
        known = settings.get(name, GroupSettings(name))
        said = replace(known, request_modes=tuple(modes.get(name, ())))
        if said != known:
            yield GroupSet(said)


def position_changes(
    life: Life, offsets: OffsetTable, newest_millis: int, *, is_backup: bool = False
) -> Iterator[Change]:
    """The changes that move the groups to a broker's positions, with what it has in flight; errors as `read_in_flight`.

    A `.bak` may be older than what the log says of a group: its positions only go forward.
    """
    revived = {
        (topic, queue_id): position
        for (group, topic), queues in offsets.items()
        if group == REVIVE_GROUP
        for queue_id, position in queues.items()
    }
    in_flight = read_in_flight(life.reader, revived, newest_millis, life.clock.millis())
    for (group, topic), queues in offsets.items():
        if group in (REVIVE_GROUP, TRANSACTION_GROUP):
            continue
        for queue_id, position in queues.items():
            ref = QueueRef(group, topic, queue_id)
            state = life.states.find(ref)
            if is_backup and state is not None and state.next_offset >= position:
                continue
            if state is None or state.next_offset != position or state.leases or state.waiting:
                yield Moved(ref, position)
            # What lies behind the position comes again by it.
            leases = [
                Lease(queue_offset, FIRST_DELIVERY, 0, until, is_released=is_released)
                for queue_offset, (until, is_released) in sorted(in_flight.get(ref, {}).items())
                if queue_offset < position
            ]
            if leases:
                yield HandedOut(ref, position, leases)


DELAY_OFFSETS = "delayOffset.json"
# Checkpoints of one request: each has at most 32 positions.
APPEND_COUNT_MAX = 512
# Many open messages are written less often: 100,000 of them, a MiB of the log, every 500 s.
PAUSE_MILLIS_A_POSITION = 5

Append = Callable[[Sequence[InternalRecord]], Sequence[AppendResult]]


class CourtesyFiles:
    """See the top of this file.

    Args:
        commitlog: reads and writes the files.
        append: appends the checkpoints.
        cluster_name: of the broker that may take over, if none has been on this store.
        broker_name: of that broker.
    """

    def __init__(self, commitlog: CommitLogClient, append: Append, cluster_name: str, broker_name: str) -> None:
        self._commitlog = commitlog
        self._append = append
        self._cluster_name = cluster_name
        self._broker_name = broker_name
        self._problem = ""
        self._written_open: tuple[Mapping[QueueRef, Sequence[int]], Mapping[QueueRef, frozenset[int]]] = {}, {}
        self._revived: dict[tuple[str, str], dict[int, int]] = {}
        self._transactions: OffsetTable = {}
        self._pause_until_millis = 0

    def take_over(self, life: Life, newest_millis: int) -> None:
        """Take what a broker wrote into the state, and write the files, so that it is taken once; in the log when this returns.

        Args:
            life: whose state it is.
            newest_millis: when the newest record was stored (ms since 1970).

        Raises:
            StoreError: a record cannot be read, and with wrong positions messages would be skipped; or the files cannot be
                written.
        """
        changes: list[Change] = []
        names = (GROUPS, OFFSETS, LIGHT_OFFSETS)
        files = [read_known(self._commitlog, name) or ConfigFile(None) for name in names]
        changes += group_changes(life, files[0].content, is_backup=files[0].is_backup)
        modes = read_known(self._commitlog, MODES)
        changes += mode_changes(life, modes.content if modes else None, list(changes))
        tables = [
            decode_offsets(file.content, with_light=True)
            for file in files[1:]
            if file.content and not is_own(file.content)
        ]
        if tables:
            is_backup = any(file.is_backup for file in files[1:])
            changes += position_changes(life, joined_offsets(tables), newest_millis, is_backup=is_backup)
        if changes:
            _log.info("consumer.taken_over", changes=len(changes))
            with life.lock:
                written = life.change(changes)
            wait_for(written)
        if any(file.content and not is_own(file.content) for file in files):
            self._write(life)
        elif any(file.problem for file in files):
            life.dirty = True  # the log has what the damaged file is to say again

    def write(self, life: Life, *, is_last: bool = False) -> None:
        """Write both files if the state has changed; a failure is reported and tried again later.

        Args:
            life: whose state it is.
            is_last: the life ends; else many checkpoints are followed by a pause.
        """
        if life.clock.millis() < self._pause_until_millis and not is_last:
            return
        try:
            has_news = life.dirty or self._transactions != self._read_transactions(None)
            if not has_news and not (is_last and _has_light(life.states)):
                return
            self._write(life, is_last=is_last)
            self._problem = ""
        except StoreError as error:
            life.dirty = True
            if error.message != self._problem:
                _log.warning("courtesy.failed", **failure_fields(error))
            self._problem = error.message

    def _write(self, life: Life, *, is_last: bool = False) -> None:
        with life.lock:
            life.dirty = False
            plan = plan_of(life.states, with_light=is_last)
            groups: dict[str, GroupConfig] = {}
            for name, group in life.states.groups.items():
                settings = group.settings
                retries = life.attempts_max(settings) - 1
                groups[name] = GroupConfig(
                    settings.ordered, retries, settings.consume_enabled, settings.priority_factor, settings.lite
                )
            modes: ModeTable = {
                (name, mode.topic): (mode.is_pop, mode.pop_share_queue_count)
                for name, group in life.states.groups.items()
                for mode in group.settings.request_modes
            }
            now_millis = life.clock.millis()
        self._write_check_points(life, plan, now_millis)
        ends = life.reader.recent.ends
        # A queue that came after the group began: without a position a broker may let the group begin at its end.
        offsets: OffsetTable = {
            key: dict.fromkeys(ends(key[1]), 0) | dict(queues) for key, queues in plan.offsets.items()
        }
        offsets |= self._revived
        for name in (OFFSETS, GROUPS, LIGHT_OFFSETS):
            file = read_known(self._commitlog, name)
            if file is None:
                continue
            previous = file.content
            if name == LIGHT_OFFSETS:
                if previous is None and not (is_last and any(is_light_queue(topic) for _, topic in offsets)):
                    continue
                content = encode_offsets(offsets, previous, time_millis=now_millis, with_light=is_last)
            elif name == OFFSETS:
                self._transactions = self._read_transactions(previous)
                offsets |= self._transactions
                content = encode_offsets(offsets, previous, time_millis=now_millis)
            else:
                content = encode_groups(groups, previous, time_millis=now_millis)
            self._commitlog.write_config_file(name, content, timeout_seconds=CALL_SECONDS)
        file = read_known(self._commitlog, MODES)
        if file is not None and (modes or file.content is not None):
            content = encode_modes(modes, file.content, time_millis=now_millis)
            self._commitlog.write_config_file(MODES, content, timeout_seconds=CALL_SECONDS)

    def _read_transactions(self, previous: bytes | None) -> OffsetTable:
        """The positions among the half messages, for the file that is to follow `previous`."""
        known = self._transactions if previous is None else decode_offsets(previous)
        own = self._commitlog.read_config_file(DELAY_OFFSETS, timeout_seconds=CALL_SECONDS)
        said = decode_transaction_offsets(own) if own else None
        offsets: OffsetTable = {}
        for topic, position in ((HALF_TOPIC, said.half if said else 0), (OP_HALF_TOPIC, said.operation if said else 0)):
            key = (TRANSACTION_GROUP, topic)
            if position or key in known:  # without one a broker takes the first message that there is
                offsets[key] = {0: max(position, known.get(key, {}).get(0, 0))}
        return offsets

    def _write_check_points(self, life: Life, plan: Plan, now_millis: int) -> None:
        """Write those of a plan, unless they are the last ones; a broker is to begin with them.

        The position of the revive group is that of the newest record that it is done with.
        """
        if plan.open and (plan.open, plan.unattempted) == self._written_open:
            return
        revived: dict[tuple[str, str], dict[int, int]] = {}
        for topic in self._revive_topics(life, is_needed=bool(plan.open)):
            ends = dict(life.reader.recent.ends(topic))
            records = check_points(plan, topic, self._broker_name, now_millis)
            for begin in range(0, len(records), APPEND_COUNT_MAX):
                results = self._append(records[begin : begin + APPEND_COUNT_MAX])
                if begin == 0:
                    ends[REVIVE_QUEUE] = results[0].queue_offset
            if any(ends.values()):
                revived[REVIVE_GROUP, topic] = {queue_id: end - 1 for queue_id, end in ends.items() if end}
        self._revived, self._written_open = revived, (plan.open, plan.unattempted)
        self._pause_until_millis = now_millis + sum(map(len, plan.open.values())) * PAUSE_MILLIS_A_POSITION

    def _revive_topics(self, life: Life, *, is_needed: bool) -> Iterator[str]:
        """Those of the brokers that were on this store; that of the settings when there was none and one is needed."""
        known = [topic for topic in life.reader.recent.topics() if topic.startswith(REVIVE_PREFIX)]
        own = REVIVE_PREFIX + self._cluster_name
        yield from known
        if is_needed and own not in known:
            yield own
