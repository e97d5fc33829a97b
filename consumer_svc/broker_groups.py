"""What a broker's files say of its consumer groups, as changes of our state.

`subscriptionGroup.json` has the groups, `consumerOffset.json` or `lmqConsumerOffset.json` their positions; what is in flight
by POP stands in checkpoints of the log (`handover/broker_pops.py`). BrokerGroups keeps up with a broker that runs beside this
service: it writes its positions every 5 s (flushConsumerOffsetInterval), in place. So a file may be read half written; then
the state stays as it is until the next look.
"""

from collections.abc import Iterator
from typing import Protocol

import structlog

from consumer_svc.delivering.life import Life
from consumer_svc.handover.broker_pops import read_in_flight
from consumer_svc.state.group_states import Change, GroupDeleted, GroupSet, GroupSettings
from consumer_svc.state.queue_state import HandedOut, Lease, Moved, QueueRef
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreCorruptedError
from store.files.config_file import ConfigFile
from store.format.config_json import is_own
from store.format.delivery.consumer_files import OffsetTable, decode_groups, decode_offsets, joined_offsets
from store.format.delivery.delay_offset_file import TRANSACTION_GROUP
from store.format.delivery.pop_records import REVIVE_GROUP

OFFSETS, GROUPS = "consumerOffset.json", "subscriptionGroup.json"
# With `enableLmq` a broker keeps the positions of all topics here, and does not write the other file.
LIGHT_OFFSETS = "lmqConsumerOffset.json"
CALL_SECONDS = 5.0
LOOK_SECONDS = 2.5  # twice as often as a broker writes its positions
# A lease from a broker has had one delivery there.
FIRST_DELIVERY = 1

_log = structlog.get_logger("reput.consumer")


class ConfigReader(Protocol):
    """Reads a file of `config/`, as the client of the commit log does."""

    def read_config(self, name: str, *, timeout_seconds: float) -> ConfigFile:
        """The file, or what is used in its place where it is missing or damaged."""


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
        files = [self._files.read_config(name, timeout_seconds=CALL_SECONDS) for name in names]
        if is_later:
            for file in files:
                if file.problem:
                    raise StoreCorruptedError(file.problem, file="config")
        contents = [file.content for file in files]
        if contents == self._seen:
            return
        groups = contents[0]
        named = set(decode_groups(groups)) if groups else set()
        table = joined_offsets(decode_offsets(offsets) for offsets in contents[1:] if offsets)
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
    """What makes the groups those of `subscriptionGroup.json`, unless it is ours; a `.bak` only adds groups."""
    if groups and not is_own(groups):
        for name, config in decode_groups(groups).items():
            settings = GroupSettings(name, config.ordered, config.retry_count_max + 1, config.consume_enabled)
            known = life.states.groups.get(name)
            if known is None or (known.settings != settings and not is_backup):
                yield GroupSet(settings)


def position_changes(
    life: Life, offsets: OffsetTable, newest_millis: int, *, is_backup: bool = False
) -> Iterator[Change]:
    """What moves the groups to a broker's positions, with what it has in flight; errors as `read_in_flight`.

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
