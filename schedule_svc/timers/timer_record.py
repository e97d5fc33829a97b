"""What a record of the timer topic says: when its message is due, which message it is, and whether it is one at all.

A record with TIMER_DEL_UNIQKEY takes back the messages of its TIMER_OUT_MS with that topic and unique key. RocketMQ joins both
by `+` (`TimerMessageStore.buildDeleteKey`).
"""

from hashlib import blake2b
from typing import NamedTuple

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from services.following.moved_record import copy_of, shorten
from store.format.delivery.timer_due import PRECISION_MILLIS, natural, slot_millis, timer_due_millis
from store.format.properties import (
    MOVED_FROM,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from store.format.topic import TIMER_TOPIC

TIMER_QUEUE = 0
# As `RecallMessageProcessor` has it.
RECALL_TAG = "_RECALL_TAG_"
RECALL_BODY = b"0"


class TimerFacts(NamedTuple):
    """What a record says.

    Attributes:
        slot_millis: TIMER_OUT_MS.
        due_millis: when the message is due (ms since 1970).
        key: of the message, or of those that are taken back.
        takes_back: it is no message.
        roll_count: how often it was stored again because it waits long.
    """

    slot_millis: int
    due_millis: int
    key: int
    takes_back: bool
    roll_count: int

    def is_in_slot(self, millis: int) -> bool:
        """Whether a time (ms since 1970) is in the second in which the message goes, as that of its recall handle is."""
        return self.slot_millis < millis <= self.slot_millis + PRECISION_MILLIS


def key_of(topic: str, unique_key: str) -> int:
    """The hash of a message's name; 0 for one without a unique key."""
    return _hash(f"{topic}+{unique_key}") if unique_key else 0


def facts_of(message: StoredMessage) -> TimerFacts | None:
    """The facts of a record of the timer topic; None when it does not say when it is due."""
    properties = message.properties
    slot, due_millis = slot_millis(properties), _due_millis(message)
    if slot is None or due_millis is None:
        return None
    topic = properties.get(REAL_TOPIC, "")
    taken_back = properties.get(TIMER_DEL_UNIQKEY)
    if taken_back:
        name = taken_back if taken_back.startswith(f"{topic}+") else f"{topic}+{taken_back}"
        key = _hash(name)
    else:
        key = key_of(topic, properties.get(UNIQ_KEY, ""))
    return TimerFacts(
        slot,
        due_millis,
        key,
        bool(taken_back),
        natural(properties.get(TIMER_ROLL_TIMES)) or 0,
    )


def due_of(message: StoredMessage) -> int | None:
    """When the message of a record is due (ms since 1970); None when it does not say, or takes back others."""
    return None if message.properties.get(TIMER_DEL_UNIQKEY) else _due_millis(message)


def rolled(message: StoredMessage) -> InternalRecord:
    """The record that lets a message wait on, at the end of the timer topic."""
    record = copy_of(message, TIMER_TOPIC, TIMER_QUEUE)
    record.properties[TIMER_ROLL_TIMES] = str((natural(message.properties.get(TIMER_ROLL_TIMES)) or 0) + 1)
    shorten(record, (MOVED_FROM,), tuple(message.properties))
    return record


def recall_of(message: StoredMessage) -> InternalRecord:
    """The record that takes a message back, as a real broker understands it."""
    topic, unique_key = message.properties[REAL_TOPIC], message.properties[UNIQ_KEY]
    kept = (TIMER_OUT_MS, TIMER_DELIVER_MS, REAL_TOPIC, REAL_QUEUE_ID)
    properties = {name: message.properties[name] for name in kept if name in message.properties}
    properties |= {TAGS: RECALL_TAG, UNIQ_KEY: unique_key, TIMER_DEL_UNIQKEY: f"{topic}+{unique_key}"}
    return InternalRecord(topic=TIMER_TOPIC, queue_id=TIMER_QUEUE, body=RECALL_BODY, properties=properties)


def _due_millis(message: StoredMessage) -> int | None:
    return timer_due_millis(message.properties, timestamp_to_millis(message.store_time, "store_time"))


def _hash(name: str) -> int:
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1
