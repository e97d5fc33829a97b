"""ModelBroker: what RocketMQ 5.3.3 does with the files and the topics of what waits, by brute force.

As `TimerMessageStore` and `ScheduleMessageService` of 5.3.3 do it; tests/rocketmq/test_waiting_both_ways.py shows that the real
one does so with our files.
"""

import struct
from collections import defaultdict

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from store.format.delivery.delay_offset_file import decode_delay_offsets
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, TIMER_ROLL_TIMES, UNIQ_KEY
from store.format.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.schedule_svc.memory_life import DELAYS_MILLIS, TARGET, MemoryLog
from tests.support.memory_log import Queue

UNIT = struct.Struct(">iqiqiqiiq")
PAGE = struct.Struct(">7q")
ROLL = 2
ROLL_WINDOW_MILLIS = 2 * 24 * 3600 * 1000


class ModelBroker:
    """A broker that has started on a log, with the files of its `config/` and its timerlog.

    Args:
        log: the log.
    """

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self._page = PAGE.unpack_from(log.config.get("timercheck", bytes(PAGE.size)))
        self._read_millis = self._page[0]
        self._wheel: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._timer_log = log.timer_log or b""
        units = list(UNIT.iter_unpack(self._timer_log))
        for _, _, magic, written, delay, place, _, _, _ in units:
            self._wheel[written + delay].append((magic, place))
        queue_offset = log.records[units[-1][5]].queue_offset + 1 if units else self._page[2]
        queue = log.queues.get((TIMER_TOPIC, 0), Queue())
        self._queue_offset = min(max(min(queue_offset, self._page[3]), queue.first), queue.end)
        # fastjson takes keys with and without quotes; the tests of the codec have files of a broker
        self._levels = decode_delay_offsets(log.config.get("delayOffset.json", b"{}"))

    def work(self) -> None:
        """Do all that is due now."""
        write_millis = max(self.log.now, self.log.clock.now) // 1000 * 1000
        self._enqueue(write_millis)
        while self._read_millis < write_millis:
            slots = [slot for slot in self._wheel if slot >= self._read_millis]
            slot = min(slots, default=write_millis)
            if slot >= write_millis:
                self._read_millis = write_millis
                break
            self._dequeue(slot)
            self._read_millis = slot + 1000
            self._enqueue(write_millis)
        self._deliver_levels()

    def recall(self, name: str, timer_out_millis: int) -> None:
        """Take a message back that waits for a time."""
        properties = {
            TIMER_DEL_UNIQKEY: f"{TARGET}+{name}",
            UNIQ_KEY: name,
            TIMER_OUT_MS: str(timer_out_millis),
            "REAL_TOPIC": TARGET,
            "REAL_QID": "0",
        }
        self.log.write([InternalRecord(topic=TIMER_TOPIC, body=b"0", properties=properties)])

    def stop(self) -> None:
        """Write the files; the page in place, as through a mapping."""
        offsets = ",".join(f"{level}:{position}" for level, position in self._levels.items())
        self.log.config["delayOffset.json"] = f'{{"dataVersion":{{"counter":3}},"offsetTable":{{{offsets}}}}}'.encode()
        numbers = (
            self._read_millis,
            0,
            self._queue_offset,
            self._queue_offset,
            0,
            self._read_millis,
            self._page[6] + 1,
        )
        rest = self.log.config.get("timercheck", bytes(4096))[PAGE.size :]
        self.log.config["timercheck"] = PAGE.pack(*numbers) + rest
        self.log.timer_log = self._timer_log

    def _records(self, topic: str, queue_id: int, begin: int) -> list[StoredMessage]:
        queue = self.log.queues.get((topic, queue_id), Queue())
        units: list[QueueUnit] = queue.units[max(begin - queue.first, 0) :]
        return [self.log.records[unit.commit_log_offset] for unit in units]

    def _enqueue(self, write_millis: int) -> None:
        for message in self._records(TIMER_TOPIC, 0, self._queue_offset):
            self._queue_offset = message.queue_offset + 1
            out_millis = int(message.properties[TIMER_OUT_MS])
            if out_millis >= write_millis + ROLL_WINDOW_MILLIS:
                self._put(write_millis + ROLL_WINDOW_MILLIS // 2, 1 | ROLL, message)
            elif out_millis >= write_millis:
                self._put(out_millis, 1, message)
            elif TIMER_DEL_UNIQKEY not in message.properties:
                self._deliver(message)

    def _put(self, slot: int, magic: int, message: StoredMessage) -> None:
        self._wheel[slot].append((magic, message.commit_log_offset))
        self._timer_log += UNIT.pack(UNIT.size, -1, magic, slot, 0, message.commit_log_offset, 0, 0, 0)

    def _dequeue(self, slot: int) -> None:
        entries = [(magic, self.log.records[place]) for magic, place in self._wheel.pop(slot)]
        recalled = {
            message.properties[TIMER_DEL_UNIQKEY]
            for magic, message in entries
            if TIMER_DEL_UNIQKEY in message.properties and not magic & ROLL
        }
        for magic, message in entries:
            if magic & ROLL:
                properties = dict(message.properties)
                properties[TIMER_ROLL_TIMES] = str(int(properties.get(TIMER_ROLL_TIMES, "0")) + 1)
                self.log.write([InternalRecord(topic=TIMER_TOPIC, body=message.body, properties=properties)])
            elif TIMER_DEL_UNIQKEY not in message.properties and f"{TARGET}+{message.unique_key}" not in recalled:
                self._deliver(message)

    def _deliver_levels(self) -> None:
        for level, delay_millis in enumerate(DELAYS_MILLIS, 1):
            for message in self._records(SCHEDULE_TOPIC, level - 1, self._levels.get(level, 0)):
                due_millis = timestamp_to_millis(message.store_time, "store_time") + delay_millis
                if due_millis > max(self.log.now, self.log.clock.now):
                    break
                self._deliver(message)
                self._levels[level] = message.queue_offset + 1

    def _deliver(self, message: StoredMessage) -> None:
        self.log.write([InternalRecord(topic=TARGET, body=message.body, properties=dict(message.properties))])
