"""A stored message as a new one: what its producer gave, without what the store and consumers wrote beside it.

Dead letters that are sent again, copies that an operator sends, and RocketMQ's `queryMsgById -s` are made here.
"""

from collections.abc import Mapping
from typing import Protocol

from reput.message.v1.message_pb2 import NewMessage, StoredMessage
from store.errors import InvalidMessageError
from store.format.body_compression import BodyNotInflatedError, inflate
from store.format.message_type import priority_of
from store.format.properties import DLQ_ORIGIN_TOPIC, LITE_TOPIC, MOVED_FROM, PRIORITY, RETRY_TOPIC, SHARDING_KEY
from store.format.request_mark import REQUEST_MARK

BODY_BYTES_MAX = 4 << 20
REAL_TOPIC = "REAL_TOPIC"
TRACE_CONTEXT = "TRACE_CONTEXT"
# How the bytes of a body are to be read that were stored as they came (messages.py); consumers see it as `body_encoding`.
BODY_ENCODING = "__REPUT_BODY_ENCODING__"
# Names of `MessageConst` that a client may set through system_properties only.
OWN_PROPERTIES = frozenset({"KEYS", "TAGS", "UNIQ_KEY", SHARDING_KEY, PRIORITY, LITE_TOPIC, TRACE_CONTEXT})
# What `GrpcConverter` keeps out of user_properties in an answer, as far as a store or a consumer service writes it.
SYSTEM_PROPERTIES = OWN_PROPERTIES | {
    *("__CRC32#", "MSG_REGION", "TRACE_ON", "WAIT", "PGROUP", "CLUSTER", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID"),
    *("DELAY", "TRAN_MSG", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID"),
    *("ORIGIN_MESSAGE_ID", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO", "CONSUME_START_TIME", "INSTANCE_ID"),
    *("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
    *(
        "TIMER_ROLL_TIMES",
        "TIMER_ROLL_LABEL",
        "TIMER_DEL_UNIQKEY",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TRANSACTION_CHECK_TIMES",
    ),
    *("CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "__STARTDELIVERTIME", "__BORNHOST", "BORN_TIMESTAMP"),
    *("DUP_INFO", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH"),
    REQUEST_MARK,
    BODY_ENCODING,
    MOVED_FROM,
    *("INNER_MULTI_QUEUE_OFFSET", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRANSFER_FLAG"),
}
# What the store, or a consumer service, wrote beside the producer's own properties.
LEFT_OUT = (SYSTEM_PROPERTIES - {SHARDING_KEY, PRIORITY, LITE_TOPIC, TRACE_CONTEXT, BODY_ENCODING}) | {
    *(MOVED_FROM, "TIMER_DELAY_LEVEL", "TIMER_ROLL_LABEL", "TIMER_CHECKPOINT"),
}


class HasProperties(Protocol):
    """A StoredMessage, or a message of `reput_client`."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""


def origin_topic_of(message: HasProperties) -> str:
    """The topic that a dead letter or a retry says it comes from, RocketMQ's or ours; empty: it does not say."""
    properties = message.properties
    return properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC) or ""


def copied_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that a producer gave."""
    copied = {name: value for name, value in properties.items() if name not in LEFT_OUT}
    if priority_of(copied) is None:
        copied.pop(PRIORITY, None)  # a broker keeps what is no number; the log would refuse it
    return copied


def new_message(message: StoredMessage, topic: str) -> NewMessage:
    """The message that its producer sent, as a new one of a topic.

    Raises:
        InvalidMessageError: its body cannot be read as its producer gave it.
    """
    try:
        body = inflate(message.body, message.sys_flag, BODY_BYTES_MAX)
    except BodyNotInflatedError as error:
        raise InvalidMessageError(
            f"the message {message.offset_msg_id} has a body that cannot be unpacked: {error}", field="body"
        ) from error
    return NewMessage(
        topic=topic,
        body=body,
        tags=message.tags,
        keys=message.keys,
        flag=message.flag,
        properties=copied_properties(message.properties),
    )
