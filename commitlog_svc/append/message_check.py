"""Checks the messages of a request. A request is checked as a whole before anything is written.

A refusal is an InvalidMessageError with the `field` and the message's `index` in the request. Refusals of the request
itself are InvalidArgumentErrors.

Properties are stored in this order: KEYS, TAGS, UNIQ_KEY, then the user's by name, so that one message always makes the
same bytes. Names that the store or a broker owns are refused: a user property KEYS would make the message appear under keys
that its field `keys` does not have.

A message with `wire_properties` comes from a client of RocketMQ: its property string is stored as it is, with all names that
RocketMQ's broker takes (`store/format/client_properties.py`).

A message with a priority goes to the queue of that priority, or loses it to another type (`store/format/message_type.py`).

A message of a topic of the type LITE with the property __LITE_TOPIC has a unit in the light queue of that lite topic. Other
light queues, those that INNER_MULTI_DISPATCH names, need the setting `enable_lmq`; without it the property is refused or, in
`wire_properties`, left out. The positions there are given when the record is written (`appender.py`).

A message that asks for a delay, a time or a verdict becomes a record of a system topic (`waiting.py`). Its own topic and queue
are checked as those of any message, and its receipt names that queue.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from commitlog_svc.append.records import PreparedRecord
from commitlog_svc.append.topics.queue_offsets import QueueTurns
from commitlog_svc.append.waiting import (
    TIMERS,
    WaitingLimits,
    WaitingPlace,
    asked_properties,
    find_place,
)
from store.errors import InvalidArgumentError, InvalidMessageError, StoreError, TopicNotFoundError
from store.format.client_properties import LEFT_OUT, encode_like_java, without_left_out
from store.format.host import Host
from store.format.java_text import java_string_hash
from store.format.message_id import UniqueKeyGenerator
from store.format.message_type import PRIORITY_MAX, message_type_of, priority_of, queue_of_priority
from store.format.properties import (
    CORRELATION_ID,
    INNER_NUM,
    KEYS,
    LIGHT_POSITION_BYTES_MAX,
    LIGHT_POSITIONS_BYTES_MIN,
    LITE_TOPIC,
    MOVED_FROM,
    MSG_TYPE,
    MULTI_DISPATCH,
    OWNED_PROPERTIES,
    PRIORITY,
    PROPERTIES_SIZE_BYTES_MAX,
    REPLY_TO_CLIENT,
    REPLY_TYPE,
    SHARDING_KEY,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    UNIQ_KEY,
    WAITING_PROPERTIES,
    WAITING_STATE_PROPERTIES,
    encode_properties,
    light_queue_names,
    parse_properties,
)
from store.format.record import PreparedMessage, prepare_record
from store.format.record_layout import CRC_PROPERTY_SIZE_BYTES
from store.format.request_mark import REQUEST_MARK
from store.format.sys_flag import COMPRESSION_TYPE_MASK, PRODUCER_MASK, CompressionType
from store.format.topic import (
    LIGHT_QUEUE_NAME_BYTES_MAX,
    LIGHT_QUEUE_PREFIX,
    LITE_MESSAGE_TYPE,
    LITE_TOPIC_NAME,
    NOT_ALLOWED_SEND_TOPICS,
    REPLY_TOPIC_SUFFIX,
    SYSTEM_TOPIC_PREFIX,
    TOPIC_NAME_SHOWN,
    has_light_units,
    lite_queue_name,
    validate_topic,
)

MESSAGE_COUNT_MAX = 1024
REQUEST_BODY_BYTES_MAX = 4 << 20
# Names of topics that were found valid, so at most 255 bytes long: at most 40 MiB.
VALID_TOPIC_COUNT_MAX = 100_000
# A message that waits is stored again later, with more properties (services/following/moved_record.py).
WAITING_PROPERTIES_BYTES_MAX = PROPERTIES_SIZE_BYTES_MAX - 256
TIME_SECONDS_MAX = 253_402_300_799  # the end of the year 9999

# RocketMQ's store does not read it: a message with it would be delivered at once.
START_DELIVER_TIME = "__STARTDELIVERTIME"
REFUSED_PROPERTIES = OWNED_PROPERTIES | WAITING_STATE_PROPERTIES | {START_DELIVER_TIME, REQUEST_MARK, MOVED_FROM}
# Not left to the client in wire_properties: they are left out, refused, make the message wait, or choose its queue.
WATCHED_WIRE_PROPERTIES = LEFT_OUT | WAITING_PROPERTIES | {INNER_NUM, PRIORITY, LITE_TOPIC}
_COMPRESSION_TYPE_MAX = CompressionType.ZLIB << 8
_parse_host = lru_cache(maxsize=4096)(Host.parse)


class Timestamp(Protocol):
    """Seconds and nanoseconds since 1970."""

    @property
    def seconds(self) -> int:
        """Whole seconds."""

    @property
    def nanos(self) -> int:
        """0 to 999,999,999."""


class NewMessage(Protocol):
    """A message as a client gives it; the generated `reput.message.v1.NewMessage` is one."""

    topic: str
    queue_id: int
    body: bytes
    tags: str
    flag: int
    unique_key: str
    delay_level: int
    reconsume_times: int
    sys_flag: int
    born_host: str
    wire_properties: bytes

    @property
    def keys(self) -> Collection[str]:
        """Business keys."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The user's properties."""

    @property
    def born_time(self) -> Timestamp:
        """When it was made."""

    @property
    def delivery_time(self) -> Timestamp:
        """When consumers shall get it."""

    def HasField(self, field_name: Any) -> bool:  # noqa: N802  # protobuf's name
        """Whether an optional field is set."""


class CheckedTopics(Protocol):
    """The part of TopicTable that the checker uses."""

    def find(self, topic: str, /) -> object | None:
        """The topic's configuration, or None when it has none."""

    def problem_of(self, topic: str, /) -> str:
        """Why a topic takes no message, and what to do; empty for one that does."""

    def writable_queue_count(self, topic: str, /) -> int:
        """How many queues a producer may write to."""

    def readable_queue_count(self, topic: str, /) -> int:
        """How many queues consumers read."""

    def message_type(self, topic: str, /) -> str:
        """The value of its attribute `message.type`; empty when it has none."""


class MessageChecker:
    """Checks the messages of a request and encodes them as records that lack their place; thread-safe.

    Args:
        topics: the topic table.
        turns: chooses the queue where the client chose none.
        unique_keys: makes the unique key where the client gave none.
        clock_millis: milliseconds since 1970; the born time of messages without one.
        store_host: written into each record.
        message_size_bytes_max: largest body.
        properties_crc: close records with `__CRC32#`.
        auto_create_topic: accept unknown topics.
        enable_lmq: take light queues that clients name in INNER_MULTI_DISPATCH.
        waiting_limits: what messages that wait may ask for.
        store_time_millis: milliseconds since 1970 that never run backwards; delays begin now by this clock.
    """

    def __init__(
        self,
        topics: CheckedTopics,
        turns: QueueTurns,
        unique_keys: UniqueKeyGenerator,
        clock_millis: Callable[[], int],
        *,
        store_host: Host,
        message_size_bytes_max: int,
        properties_crc: bool,
        auto_create_topic: bool,
        enable_lmq: bool = False,
        waiting_limits: WaitingLimits,
        store_time_millis: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._take_turn = turns.take
        self._create_unique_key = unique_keys.create
        self._clock_millis = clock_millis
        self._store_host = store_host
        self._message_size_bytes_max = message_size_bytes_max
        self._properties_crc = properties_crc
        self._auto_create_topic = auto_create_topic
        self._enable_lmq = enable_lmq
        self._refused_properties = REFUSED_PROPERTIES - {MULTI_DISPATCH} if enable_lmq else REFUSED_PROPERTIES
        self._waiting_limits = waiting_limits
        self._store_time_millis = store_time_millis
        self._valid_topics: set[str] = set()

    def check(
        self, messages: Sequence[NewMessage], born_host: Host, *, deduplicate: bool = False
    ) -> list[PreparedRecord]:
        """An encoded record for each message.

        Args:
            messages: 1 to 1,024.
            born_host: the sender's address.
            deduplicate: whether each message must have a unique key.

        Raises:
            InvalidArgumentError: no message, too many, or too many bytes together; field `messages`.
            InvalidMessageError: with `field` and `index`.
            TopicNotFoundError: the topic does not exist and must be created first; with `index`.
        """
        check_count(len(messages), "messages")
        now_millis = self._clock_millis()
        records = []
        body_bytes = 0
        index = 0
        try:
            for index, message in enumerate(messages):  # noqa: B007  # the handler below names it
                if deduplicate and not message.HasField("unique_key") and not message.HasField("wire_properties"):
                    raise _no_key()
                body = message.body
                body_bytes += len(body)
                record = self._check_one(message, body, born_host, now_millis)
                if deduplicate and not record.unique_key:
                    raise _no_key()
                records.append(record)
        except (InvalidMessageError, TopicNotFoundError) as error:
            error.metadata["index"] = str(index)
            raise
        check_body_bytes(body_bytes, max(REQUEST_BODY_BYTES_MAX, self._message_size_bytes_max), "messages")
        return records

    def _check_one(self, message: NewMessage, body: bytes, born_host: Host, now_millis: int) -> PreparedRecord:
        topic = message.topic
        queue_count = self._topics.writable_queue_count(topic)
        # A topic that was valid may be deleted since.
        is_gone = not self._auto_create_topic and self._topics.find(topic) is None
        if not queue_count or is_gone or topic not in self._valid_topics:
            self._check_topic(topic)
        if not 0 < len(body) <= self._message_size_bytes_max:
            raise InvalidMessageError(
                f"the body has {len(body)} bytes, and 1 to {self._message_size_bytes_max} can be stored: send another one"
                + (", or set REPUT_COMMITLOG_MESSAGE_SIZE_BYTES_MAX" if body else ""),
                field="body",
                sizeBytes=len(body),
                sizeBytesMax=self._message_size_bytes_max,
            )
        has_field = message.HasField
        if has_field("wire_properties"):
            text = self._wire_text(message)
        else:
            text = self._text(message)
        queue_id = self._queue_id(message, queue_count, text)
        born_time_millis = check_time(message.born_time, "born_time") if has_field("born_time") else now_millis
        sys_flag, reconsume_times = message.sys_flag, message.reconsume_times
        if sys_flag or reconsume_times:
            _check_numbers(sys_flag, reconsume_times)
        properties = text.stored
        place = None
        if text.asked is not None:
            place = self._find_place(message, queue_id, text)
            stored = text.asked if place is None else place.properties
            if text.is_wire:
                properties = properties if place is None else encode_like_java(stored)
            else:
                properties += encode_properties({name: stored[name] for name in sorted(stored)})
            if place is not None and len(properties) > WAITING_PROPERTIES_BYTES_MAX:
                raise InvalidMessageError(
                    f"the properties of this message take {len(properties)} bytes, and {WAITING_PROPERTIES_BYTES_MAX} are "
                    "allowed for one that waits: make them shorter",
                    field=text.field,
                    sizeBytes=len(properties),
                    sizeBytesMax=WAITING_PROPERTIES_BYTES_MAX,
                )
        queue_key = (topic, queue_id) if place is None else (place.topic, place.queue_id)
        light_queues = text.light_queues if place is None and text.light_queues and has_light_units(topic) else ()
        if light_queues:
            room_bytes = LIGHT_POSITIONS_BYTES_MIN + LIGHT_POSITION_BYTES_MAX * len(light_queues)
            size_bytes_max = PROPERTIES_SIZE_BYTES_MAX - CRC_PROPERTY_SIZE_BYTES - room_bytes
            if len(properties) > size_bytes_max:
                raise InvalidMessageError(
                    f"the properties of this message take {len(properties)} bytes, and {size_bytes_max} are allowed for one "
                    f"in {len(light_queues)} light queues: make them shorter, or name fewer queues",
                    field=text.field,
                    sizeBytes=len(properties),
                    sizeBytesMax=size_bytes_max,
                )
        data = prepare_record(
            PreparedMessage(
                *queue_key,
                body,
                properties,
                born_time_millis,
                check_host("born_host", message.born_host) or born_host,
                self._store_host,
                message.flag,
                sys_flag,
                reconsume_times,
                0,
                self._properties_crc,
            )
        )
        waiting = None if place is None else place.waiting
        return PreparedRecord(queue_key, text.unique_key, data, waiting=waiting, light_queues=light_queues)

    def _text(self, message: NewMessage) -> "_Text":
        """The properties of a message with fields for them."""
        # Checked field by field, so that no dictionary is made for a common message.
        keys, tags = message.keys, message.tags
        own = f"KEYS\x01{_check_keys(keys)}\x02" if keys else ""
        if tags:
            own += f"TAGS\x01{tags if tags.isalnum() else _check_text('tags', tags)}\x02"
        if message.HasField("unique_key"):
            unique_key = _check_text("unique_key", message.unique_key)
        else:
            unique_key = self._create_unique_key()
        sharding_key = None
        user_properties = message.properties
        if user_properties:
            if not self._refused_properties.isdisjoint(user_properties):
                raise _refused_property(min(self._refused_properties.intersection(user_properties)))
            sharding_key = user_properties.get(SHARDING_KEY)
            if message.topic.endswith(REPLY_TOPIC_SUFFIX):  # the fast path takes no message of such a topic
                # The first reply to a request counts, so all of them go to one queue.
                sharding_key = _check_reply(user_properties) or sharding_key
        asks = user_properties or message.delay_level or message.HasField("delivery_time")
        asked = self._asked_properties(message) if asks else None
        priority = None if asked is None or PRIORITY not in asked else _priority_in(asked)
        light_queues: tuple[str, ...] = ()
        if asked is not None and (LITE_TOPIC in asked or MULTI_DISPATCH in asked):
            light_queues = self._light_queues(message.topic, asked, "properties")
            _name_light_queues(asked, light_queues)
        # A broker looks at no types, so what has the properties of its protocol is taken; RocketMQ's proxy refuses it, as this.
        if LITE_TOPIC not in user_properties and self._topics.message_type(message.topic) == LITE_MESSAGE_TYPE:
            raise InvalidMessageError(
                f"the topic {message.topic[:TOPIC_NAME_SHOWN]} takes messages of lite topics, and this one names none, so no "
                f"group would get it: give it the property {LITE_TOPIC}, or send it to another topic",
                field="properties",
                property=LITE_TOPIC,
            )
        stored = f"{own}UNIQ_KEY\x01{unique_key}\x02".encode()
        return _Text(stored, unique_key, sharding_key, asked, priority, light_queues=light_queues)

    def _wire_text(self, message: NewMessage) -> "_Text":
        """The properties of a message with `wire_properties`."""
        _check_wire_alone(message)
        properties = message.wire_properties
        parsed = parse_properties(properties)
        if INNER_NUM in parsed:  # RocketMQ: `HookUtils.checkInnerBatch`
            raise InvalidMessageError(
                f"the property {INNER_NUM} marks an inner batch, and no body of one is taken: send its messages one by one",
                field="wire_properties",
                property=INNER_NUM,
            )
        light_queues: tuple[str, ...] = ()
        if LITE_TOPIC in parsed or MULTI_DISPATCH in parsed:
            light_queues = self._light_queues(message.topic, parsed, "wire_properties")
        if light_queues or not LEFT_OUT.isdisjoint(parsed):
            is_as_sent = parsed.get(MULTI_DISPATCH) == ",".join(light_queues)
            properties = without_left_out(properties, keep=MULTI_DISPATCH if is_as_sent else "")
            parsed = parse_properties(properties)
            if light_queues and not is_as_sent:
                _name_light_queues(parsed, light_queues)
                gap = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
                properties += gap + encode_properties({MULTI_DISPATCH: parsed[MULTI_DISPATCH]})
        if message.topic.endswith(REPLY_TOPIC_SUFFIX):
            _check_reply(parsed)
        priority = priority_of(parsed)
        if priority is not None and message_type_of(parsed) != "PRIORITY":
            priority = None
            parsed = {name: value for name, value in parsed.items() if name != PRIORITY}
            properties = encode_like_java(parsed)
        asked = None
        if not WAITING_PROPERTIES.isdisjoint(parsed):
            asked = dict(parsed)
        # Before `__CRC32#`, and because without it a zero at the end of a record is the sign of a torn one.
        if properties.endswith(b"\0") or (self._properties_crc and properties and properties[-1] != 2):
            properties += b"\x02"
        size_bytes_max = PROPERTIES_SIZE_BYTES_MAX - self._properties_crc * CRC_PROPERTY_SIZE_BYTES
        if len(properties) > size_bytes_max:
            raise InvalidMessageError(
                f"wire_properties takes {len(properties)} bytes, and {size_bytes_max} can be stored: make them shorter",
                field="wire_properties",
                sizeBytes=len(properties),
                sizeBytesMax=size_bytes_max,
            )
        return _Text(properties, parsed.get(UNIQ_KEY, ""), None, asked, priority, True, light_queues)

    def _light_queues(self, topic: str, properties: Mapping[str, str], field: str) -> tuple[str, ...]:
        """The light queues that a message has a unit in; INNER_MULTI_DISPATCH has to name just them."""
        if LITE_TOPIC in properties and self._topics.message_type(topic) == LITE_MESSAGE_TYPE:
            lite_topic = properties[LITE_TOPIC]
            if LITE_TOPIC_NAME.fullmatch(lite_topic) is None:
                raise InvalidMessageError(
                    f"the lite topic {lite_topic[:TOPIC_NAME_SHOWN]!r} is not allowed: use 1 to 64 letters, digits, _ and -",
                    field=field,
                    property=LITE_TOPIC,
                )
            return (lite_queue_name(topic, lite_topic),)
        names = properties.get(MULTI_DISPATCH, "").rstrip(",") if self._enable_lmq else ""
        if not names:
            return ()
        queues = light_queue_names(names, topic)
        named = names.split(",")
        if len(queues) < len(named):
            # A broker would give such a name an empty or a wrong position, at which its dispatch stops.
            wrong = next((name for name in named if name not in queues), "one twice")
            raise InvalidMessageError(
                f"the property {MULTI_DISPATCH} names {wrong[:TOPIC_NAME_SHOWN]}: name each light queue once, as "
                f"{LIGHT_QUEUE_PREFIX}..., in at most {LIGHT_QUEUE_NAME_BYTES_MAX} bytes, without a slash, and lite topics of "
                f"{topic} only",
                field=field,
                property=MULTI_DISPATCH,
            )
        return queues

    def _queue_id(self, message: NewMessage, queue_count: int, text: "_Text") -> int:
        if text.priority is not None:
            return queue_of_priority(text.priority, queue_count)
        if message.HasField("queue_id"):
            queue_id = message.queue_id
            # RocketMQ's clients have a route for 30 s; a broker takes what they send meanwhile to queues that are only read.
            if text.is_wire and queue_id >= queue_count:
                queue_count = max(queue_count, self._topics.readable_queue_count(message.topic))
            if not 0 <= queue_id < queue_count:
                raise InvalidMessageError(
                    f"topic {message.topic} has the queues 0 to {queue_count - 1}, not {queue_id}: choose one of them",
                    field="queue_id",
                    queueId=queue_id,
                    queueCount=queue_count,
                )
            return queue_id
        if text.sharding_key is not None:
            return abs(java_string_hash(text.sharding_key)) % queue_count
        return self._take_turn(message.topic) % queue_count

    def _asked_properties(self, message: NewMessage) -> dict[str, str]:
        has_time = message.HasField("delivery_time")
        delivery_millis = check_time(message.delivery_time, "delivery_time") if has_time else None
        return asked_properties(message.properties, message.delay_level, delivery_millis)

    def _find_place(self, message: NewMessage, queue_id: int, text: "_Text") -> WaitingPlace | None:
        asked = text.asked
        if asked is None or WAITING_PROPERTIES.isdisjoint(asked):
            return None
        field = text.field
        if message.delay_level:
            field = "delay_level"
        elif message.HasField("delivery_time"):
            field = "delivery_time"
        return find_place(
            message.topic,
            queue_id,
            text.unique_key,
            _of_wire(asked) if text.is_wire else asked,
            self._store_time_millis(),
            self._waiting_limits,
            field=field,
            reconsume_times=message.reconsume_times,
        )

    def _check_topic(self, topic: str) -> None:
        validate_topic(topic)
        if topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
            raise InvalidMessageError(f"topic {topic} belongs to the broker: choose another", field="topic")
        if problem := self._topics.problem_of(topic):
            raise InvalidMessageError(problem, field="topic")
        if not self._topics.writable_queue_count(topic):
            raise InvalidMessageError(
                f"topic {topic} is configured without the right to write: change its perm", field="topic", perm="write"
            )
        if not self._auto_create_topic and self._topics.find(topic) is None:
            raise TopicNotFoundError(
                f"there is no topic {topic}, and REPUT_COMMITLOG_AUTO_CREATE_TOPIC is off: create it first", topic=topic
            )
        if len(self._valid_topics) < VALID_TOPIC_COUNT_MAX:
            self._valid_topics.add(topic)


class _Text(NamedTuple):
    """The properties of a message.

    Attributes:
        stored: the bytes of its property string, without those of `asked` unless it `is_wire`.
        unique_key: its UNIQ_KEY; empty when it has none.
        sharding_key: chooses its queue; None: nothing does.
        asked: properties by which a message may ask to wait; None: it does not.
        priority: chooses its queue before all others; None: it has none.
        is_wire: they came as `wire_properties`.
        light_queues: it has a unit in each of them, unless it waits.
    """

    stored: bytes
    unique_key: str
    sharding_key: str | None
    asked: dict[str, str] | None
    priority: int | None = None
    is_wire: bool = False
    light_queues: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """Where they stand, for refusals."""
        return "wire_properties" if self.is_wire else "properties"


def _priority_in(asked: dict[str, str]) -> int | None:
    """The priority that a message asks for, which one of another type loses; InvalidMessageError."""
    priority = priority_of(asked)
    if priority is None:
        raise InvalidMessageError(
            f"the property {PRIORITY} is {asked[PRIORITY][:20]!r}: a priority is 0 to {PRIORITY_MAX}",
            field="properties",
            property=PRIORITY,
        )
    if message_type_of(asked) == "PRIORITY":
        return priority
    del asked[PRIORITY]
    return None


def _name_light_queues(properties: dict[str, str], light_queues: tuple[str, ...]) -> None:
    properties.pop(MULTI_DISPATCH, None)
    if light_queues:
        properties[MULTI_DISPATCH] = ",".join(light_queues)


def _no_key() -> InvalidMessageError:
    return InvalidMessageError(
        "deduplicate needs a unique_key, and there is none: give each message its own", field="unique_key"
    )


def _check_wire_alone(message: NewMessage) -> None:
    has_field = message.HasField
    others = [
        *(name for name in ("tags", "keys", "properties", "delay_level") if getattr(message, name)),
        *(name for name in ("unique_key", "delivery_time") if has_field(name)),
    ]
    if others:
        raise InvalidMessageError(
            f"wire_properties is given, and so is {others[0]}: wire_properties holds all properties, give it alone",
            field="wire_properties",
        )


def _of_wire(asked: Mapping[str, str]) -> dict[str, str]:
    """What a message asks for, without the state of the waiting message of which it may be a copy."""
    if TIMER_DEL_UNIQKEY in asked:
        raise InvalidMessageError(
            f"the property {TIMER_DEL_UNIQKEY} takes a timer back: call RecallMessage with its recall handle",
            field="wire_properties",
            property=TIMER_DEL_UNIQKEY,
        )
    # A message that has waited is none that asks for a time again (`HookUtils.checkIfTimerMessage`).
    left_out = WAITING_STATE_PROPERTIES.union(TIMERS) if TIMER_OUT_MS in asked else WAITING_STATE_PROPERTIES
    return {name: value for name, value in asked.items() if name not in left_out}


def _check_numbers(sys_flag: int, reconsume_times: int) -> None:
    if sys_flag & ~PRODUCER_MASK or sys_flag & COMPRESSION_TYPE_MASK > _COMPRESSION_TYPE_MAX:
        raise InvalidMessageError(
            f"sys_flag is {sys_flag:#x}: 0x1, 0x2 and one of 0x100, 0x200 and 0x300 are allowed",
            field="sys_flag",
            value=sys_flag,
        )
    if reconsume_times < 0:
        raise InvalidMessageError(
            f"reconsume_times is {reconsume_times}: 0 or more is allowed",
            field="reconsume_times",
            value=reconsume_times,
        )


def _check_reply(properties: Mapping[str, str]) -> str | None:
    """The CORRELATION_ID of a reply; None for another message.

    Refuses a reply that its requester would not get, as RocketMQ's client and ReplyMessageProcessor make and read replies.
    """
    names = [name for name in (CORRELATION_ID, REPLY_TO_CLIENT) if name in properties]
    is_reply = properties.get(MSG_TYPE) == REPLY_TYPE
    if is_reply and len(names) < 2:
        missing = REPLY_TO_CLIENT if CORRELATION_ID in names else CORRELATION_ID
        raise InvalidMessageError(
            f"the reply has no property {missing}: give it that of the request", field="properties", name=missing
        )
    if names and not is_reply:
        raise InvalidMessageError(
            f"the message has the property {names[0]} of a reply and is none: give it {MSG_TYPE} = {REPLY_TYPE}",
            field="properties",
            name=MSG_TYPE,
        )
    return properties[CORRELATION_ID] if is_reply else None


def check_count(count: int, field: str) -> None:
    """InvalidArgumentError unless a request has 1 to MESSAGE_COUNT_MAX messages or records; `field` holds them."""
    if not 1 <= count <= MESSAGE_COUNT_MAX:
        raise InvalidArgumentError(
            f"a request holds 1 to {MESSAGE_COUNT_MAX} {field}, not {count}: split it", field=field, count=count
        )


def check_body_bytes(size_bytes: int, size_bytes_max: int, field: str) -> None:
    """InvalidArgumentError when the bodies of a request have too many bytes together; `field` holds them."""
    if size_bytes > size_bytes_max:
        raise InvalidArgumentError(
            f"a request holds at most {size_bytes_max} bytes of bodies, not {size_bytes}: split it",
            field=field,
            sizeBytes=size_bytes,
            sizeBytesMax=size_bytes_max,
        )


def _check_keys(keys: Collection[str]) -> str:
    text = " ".join(keys)
    if text.isalnum() and len(keys) == 1:
        return text
    if text.count(" ") + 1 != len(keys) or not all(keys):
        _refuse_keys(keys)
    return _check_text("keys", text)


def _refuse_keys(keys: Collection[str]) -> None:
    for key in keys:
        if not key:
            raise InvalidMessageError("a key is empty: leave it out", field="keys")
        if " " in key:
            parts = [part for part in key.split(" ") if part]
            raise InvalidMessageError(
                f"the key {key!r} holds a space, where RocketMQ splits keys: it would be found under {parts} only; "
                "give those as keys of their own",
                field="keys",
                key=key,
                split=parts,
            )


def _check_text(field: str, text: str) -> str:
    if not text:
        raise InvalidMessageError(f"{field} is empty: leave it out or fill it", field=field)
    if "\x01" in text or "\x02" in text:
        raise InvalidMessageError(
            f"{field} holds U+0001 or U+0002, which separate properties: leave them out", field=field
        )
    return text


def check_time(time: Timestamp, field: str) -> int:
    """The time in a field in milliseconds since 1970; InvalidMessageError outside 1970 to 9999."""
    seconds, nanos = time.seconds, time.nanos
    if not 0 <= seconds <= TIME_SECONDS_MAX or not 0 <= nanos < 1_000_000_000:
        raise InvalidMessageError(
            f"{field} is {seconds} s and {nanos} ns since 1970: it must be in the years 1970 to 9999",
            field=field,
        )
    return seconds * 1000 + nanos // 1_000_000


def check_host(field: str, text: str) -> Host | None:
    """The host in a field, None when it is empty; InvalidMessageError for anything else."""
    if not text:
        return None
    try:
        return _parse_host(text)
    except InvalidArgumentError as error:
        raise InvalidMessageError(f"{field}: {error.message}", field=field, value=text) from error


def _refused_property(name: str) -> StoreError:
    if name == START_DELIVER_TIME:
        why = "is not read by RocketMQ's store: use the field delivery_time or the property TIMER_DELIVER_MS"
    elif name in WAITING_STATE_PROPERTIES:
        why = (
            "is set by the store, when it knows how a message waits: ask for a delay by delivery_time or delay_level, and "
            "for a transaction by TRAN_MSG"
        )
    elif name in (KEYS, TAGS, UNIQ_KEY):
        why = f"belongs to the store: use the field {'unique_key' if name == UNIQ_KEY else name.lower()}"
    else:
        why = "belongs to the store: leave it out"
    return InvalidMessageError(f"the property {name} {why}", field="properties", property=name)
