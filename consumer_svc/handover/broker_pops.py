"""What a broker has in flight by POP when it stops: checkpoints without an acknowledgement.

A broker moves a group's position when it hands messages out. What is not acknowledged stands only in a checkpoint, first in the
timer topic, then, when the invisible time is almost over, in a revive topic. The position of the revive group says which
checkpoints of a revive topic have been dealt with. So these are in flight:

    in a revive topic, behind the position of the revive group
    in the timer topic, and not in a revive topic yet

Records in the timer topic stay there, so what came out of it is told from the revive topics. Where store times are unproven,
both are read from their first records, and so is a revive topic where the position of its group proves nothing. That may be
three days of a busy broker. So an acknowledgement ends its message as it is read, and above KEPT_COUNT_MAX only this is kept:

    checkpoints that wait, and what of them is acknowledged        those of a revive topic however old: they are in flight
    checkpoints that are over, and other acknowledgements          within the longest invisible time

Older checkpoints of the timer topic are over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from consumer_svc.delivering.life import INVISIBLE_MILLIS_MAX
from consumer_svc.state.queue_state import QueueRef
from reput.message.v1.message_pb2 import StoredMessage
from services.reading.queue_reader import ANSWER_BODY_BYTES_MAX, Reader
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError, UnsupportedStoreError
from store.format.delivery.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_PREFIX,
    TAGS_CODES,
    TIMER_TOPIC,
    CheckPoint,
    PopKey,
    decode_ack,
    decode_check_point,
)
from store.format.derived.queue_ext import is_ext_address
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import REAL_TOPIC

# Checkpoints in the timer topic that are older than the longest invisible time, and so much more, are over.
MARGIN_MILLIS = 600_000
UNIT_PAGE_COUNT = 512
# Messages of checkpoints, checkpoints that are over, and acknowledged messages, whatever their times: about 200 MB.
KEPT_COUNT_MAX = 500_000

# By queue and position: when the message becomes visible again (ms since 1970), and whether this delivery is no attempt.
InFlight = dict[QueueRef, dict[int, tuple[int, bool]]]

_log = structlog.get_logger("reput.consumer")


def read_in_flight(
    reader: Reader, revived: Mapping[tuple[str, int], int], newest_millis: int, now_millis: int
) -> InFlight:
    """The messages in flight.

    Args:
        reader: reads queues and records.
        revived: the positions of the revive group, by revive topic and queue.
        newest_millis: when the newest record was stored (ms since 1970).
        now_millis: the time of leases; a record that is ahead of it says nothing of which checkpoints are over.

    Raises:
        StoreError: a record cannot be read: what it says would be skipped.
    """
    reading = _Reading(reader, min(newest_millis, now_millis) - INVISIBLE_MILLIS_MAX - MARGIN_MILLIS, now_millis)
    for topic in reader.recent.topics():
        if topic.startswith(REVIVE_PREFIX):
            for queue_id in reader.recent.ends(topic):
                reading.read_revive_queue(topic, queue_id, revived.get((topic, queue_id), -1))
    for queue_id in reader.recent.ends(TIMER_TOPIC):
        reading.read_timer_queue(queue_id)
    in_flight = reading.in_flight()
    if reading.record_count:
        _log.info(
            "consumer.broker_pops",
            records=reading.record_count,
            in_flight=sum(len(offsets) for offsets in in_flight.values()),
        )
    return in_flight


class _Reading:
    """Reads the topics, and puts checkpoints and acknowledgements together."""

    def __init__(self, reader: Reader, since_millis: int, now_millis: int) -> None:
        self._reader = reader
        self._until_millis_max = now_millis + INVISIBLE_MILLIS_MAX
        self._since_millis = max(since_millis, 0)
        self._waiting: dict[PopKey, dict[int, CheckPoint]] = {}  # by put count; without what is acknowledged
        self._over: set[tuple[PopKey, int]] = set()
        self._acked: dict[PopKey, set[int]] = {}
        self._kept_count = 0
        self._is_by_time = False  # too many: the old ones are forgotten
        self.record_count = 0

    def read_revive_queue(self, topic: str, queue_id: int, revived: int) -> None:
        """`revived`: position of the newest record that was dealt with; -1 for none.

        One that the queue does not have proves nothing: it is of another store, or of a log that was cut.
        """
        end = self._reader.recent.end(topic, queue_id)
        if revived >= end:
            _log.warning("consumer.broker_pops_unproven", topic=topic, queue_id=queue_id, position=revived, end=end)
            revived = -1
        begin = min(self._begin(topic, queue_id), revived + 1)
        for message in self._records(topic, queue_id, begin):
            point = self._take(message)
            if point is not None and message.queue_offset <= revived:
                if not self._is_forgotten(point.key):
                    self._over.add((point.key, point.put_count))
                    self._count_kept(1)
            elif point is not None:
                self._await(point)

    def read_timer_queue(self, queue_id: int) -> None:
        """Likewise; everything here that came out of the timer is in a revive topic, which was read before."""
        for message in self._records(TIMER_TOPIC, queue_id, self._begin(TIMER_TOPIC, queue_id)):
            if message.properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX):
                point = self._take(message)
                if point is None or self._is_forgotten(point.key):
                    continue
                if (point.key, point.put_count) not in self._over:
                    self._await(point)

    def _begin(self, topic: str, queue_id: int) -> int:
        """The first checkpoint that may not be over: by time if that is exact, else the first one of all."""
        try:
            return self._reader.offset_at(topic, queue_id, self._since_millis, is_exact=True)
        except UnsupportedStoreError:
            return 0

    def in_flight(self) -> InFlight:
        """See `read_in_flight`."""
        in_flight: InFlight = {}
        for point in (point for points in self._waiting.values() for point in points.values()):
            of_queue = in_flight.setdefault(QueueRef(point.consumer_group, point.topic, point.queue_id), {})
            until = min(point.pop_millis + point.invisible_millis, self._until_millis_max)
            for queue_offset in point.queue_offsets:
                if queue_offset >= 0:
                    of_queue[queue_offset] = max((until, point.is_suspended), of_queue.get(queue_offset, (0, False)))
        return in_flight

    def _take(self, message: StoredMessage) -> CheckPoint | None:
        """Note an acknowledgement; return a checkpoint."""
        self.record_count += 1
        if message.tags == CHECK_POINT_TAG:
            return decode_check_point(message.body)
        if message.tags not in (ACK_TAG, BATCH_ACK_TAG):
            return None
        ack = decode_ack(message.body)
        if ack is not None and (ack.key in self._waiting or not self._is_forgotten(ack.key)):
            self._acked.setdefault(ack.key, set()).update(ack.queue_offsets)
            for point in list(self._waiting.get(ack.key, {}).values()):
                self._strike(point)
            self._count_kept(len(ack.queue_offsets))
        return None

    def _await(self, point: CheckPoint) -> None:
        """Note a checkpoint that is not over."""
        self._waiting.setdefault(point.key, {})[point.put_count] = point
        self._strike(point)
        self._count_kept(len(point.queue_offsets))

    def _strike(self, point: CheckPoint) -> None:
        """Take what is acknowledged from a checkpoint that waits; it is over when nothing is left."""
        acked, points = self._acked.get(point.key, set()), self._waiting[point.key]
        left = [queue_offset for queue_offset in point.queue_offsets if queue_offset not in acked]
        if left:
            points[point.put_count] = replace(point, queue_offsets=left)
            return
        del points[point.put_count]
        if not points:
            del self._waiting[point.key]
        if not self._is_forgotten(point.key):
            self._over.add((point.key, point.put_count))  # the timer topic may have it, too
        elif not points:
            self._acked.pop(point.key, None)

    def _is_forgotten(self, key: PopKey) -> bool:
        return self._is_by_time and key[-1] < self._since_millis  # when the messages were handed out

    def _count_kept(self, count: int) -> None:
        self._kept_count += count
        if self._kept_count <= KEPT_COUNT_MAX or self._is_by_time:
            return
        self._is_by_time = True
        _log.warning("consumer.broker_pops_by_time", kept=self._kept_count, since_millis=self._since_millis)
        self._over = {each for each in self._over if not self._is_forgotten(each[0])}
        self._acked = {
            key: offsets for key, offsets in self._acked.items() if key in self._waiting or not self._is_forgotten(key)
        }

    def _records(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[StoredMessage]:
        while True:
            run = self._reader.units(topic, queue_id, queue_offset, UNIT_PAGE_COUNT)
            if not run.units:
                return
            # An address in consumequeue_ext is left where the tags code is not known: the record tells.
            wanted = [unit for unit in run.units if unit.tags_code in TAGS_CODES or is_ext_address(unit.tags_code)]
            yield from self._messages(wanted)
            queue_offset = run.queue_offset + len(run.units)

    def _messages(self, units: Sequence[QueueUnit]) -> Iterator[StoredMessage]:
        read_count = 0
        while read_count < len(units):
            for outcome in self._reader.records(units[read_count:], ANSWER_BODY_BYTES_MAX):
                if isinstance(outcome, StoredMessage):
                    if outcome.body_omitted:
                        break
                    yield outcome
                elif isinstance(outcome, StoreError) and not isinstance(
                    outcome, RecordNotFoundError | OffsetOutOfRangeError
                ):
                    raise outcome
                read_count += 1
