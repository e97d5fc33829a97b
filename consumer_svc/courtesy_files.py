"""CourtesyFiles: RocketMQ's `consumerOffset.json` and `subscriptionGroup.json`, kept so that a real broker can take over.

They are read when a broker has written them since: then its positions count, what was in flight here is forgotten, and what the
broker had in flight is in flight here. With the positions go checkpoints in the revive topic of the broker's cluster; see
`handover/plan.py`. They are in the log before the file that counts on them is written.

With `enableLmq` a broker has `lmqConsumerOffset.json` in place of the first. Where there is one it is read and kept in the same
way, with what it says of light queues.

A broker keeps its positions among the half messages in `consumerOffset.json`, too. They belong to the schedule service, which
says them in `delayOffset.json`: one service writes one file. They only go forward.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from consumer_svc.broker_groups import CALL_SECONDS, GROUPS, LIGHT_OFFSETS, OFFSETS, group_changes, position_changes
from consumer_svc.delivering.life import Life
from consumer_svc.handover.plan import REVIVE_QUEUE, Plan, check_points, plan_of
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import QueueRef
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult
from services.calling.commitlog import CommitLogClient
from services.following.state_topic.state_writer import wait_for
from store.errors import StoreError
from store.failure_fields import failure_fields
from store.format.config_json import is_own
from store.format.delivery.consumer_files import (
    GroupConfig,
    OffsetTable,
    decode_offsets,
    encode_groups,
    encode_offsets,
    joined_offsets,
)
from store.format.delivery.delay_offset_file import TRANSACTION_GROUP, decode_transaction_offsets
from store.format.delivery.pop_records import REVIVE_GROUP, REVIVE_PREFIX
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC

DELAY_OFFSETS = "delayOffset.json"
# Checkpoints of one request: each has at most 32 positions.
APPEND_COUNT_MAX = 512
# Many open messages are written less often: 100,000 of them, a MiB of the log, every 500 s.
PAUSE_MILLIS_A_POSITION = 5

Append = Callable[[Sequence[InternalRecord]], Sequence[AppendResult]]

_log = structlog.get_logger("reput.consumer")


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
        files = [self._commitlog.read_config(name, timeout_seconds=CALL_SECONDS) for name in names]
        changes += group_changes(life, files[0].content, is_backup=files[0].is_backup)
        tables = [decode_offsets(file.content) for file in files[1:] if file.content and not is_own(file.content)]
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
            if not life.dirty and self._transactions == self._read_transactions(None):
                return
            self._write(life)
            self._problem = ""
        except StoreError as error:
            life.dirty = True
            if error.message != self._problem:
                _log.warning("courtesy.failed", **failure_fields(error))
            self._problem = error.message

    def _write(self, life: Life) -> None:
        with life.lock:
            life.dirty = False
            plan = plan_of(life.states)
            groups: dict[str, GroupConfig] = {}
            for name, group in life.states.groups.items():
                settings = group.settings
                retries = life.attempts_max(settings) - 1
                groups[name] = GroupConfig(settings.ordered, retries, settings.consume_enabled)
            now_millis = life.clock.millis()
        self._write_check_points(life, plan, now_millis)
        ends = life.reader.recent.ends
        # A queue that came after the group began: without a position a broker may let the group begin at its end.
        offsets: OffsetTable = {
            key: dict.fromkeys(ends(key[1]), 0) | dict(queues) for key, queues in plan.offsets.items()
        }
        offsets |= self._revived
        for name in (OFFSETS, GROUPS, LIGHT_OFFSETS):
            previous = self._commitlog.read_config_file(name, timeout_seconds=CALL_SECONDS)
            if name == LIGHT_OFFSETS:
                if previous is None:
                    continue
                content = encode_offsets(offsets, previous, time_millis=now_millis)
            elif name == OFFSETS:
                self._transactions = self._read_transactions(previous)
                offsets |= self._transactions
                content = encode_offsets(offsets, previous, time_millis=now_millis)
            else:
                content = encode_groups(groups, previous, time_millis=now_millis)
            self._commitlog.write_config_file(name, content, timeout_seconds=CALL_SECONDS)

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
