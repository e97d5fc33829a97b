"""What the append kernels and their callers share: the fields of a request on the wire, and the tables that they pass on.

The wire fields are those of `reput.commitlog.v1.AppendMessagesRequest`, `AppendMessageStreamRequest` (the same numbers),
`reput.message.v1.NewMessage` and `AppendResult`; a test compares them with the descriptors. A tag is the field number
times 8 plus the kind of its value: 0 for a varint, 2 for a length and that many bytes. All tags here are below 128, one byte.
"""

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

# AppendMessagesRequest
REQUEST_MESSAGES_TAG = 0x0A
REQUEST_FLUSH_TAG = 0x10
REQUEST_DEDUPLICATE_TAG = 0x18
# NewMessage
TOPIC_TAG = 0x0A
QUEUE_ID_TAG = 0x10
BODY_TAG = 0x1A
TAGS_TAG = 0x22
KEYS_TAG = 0x2A
PROPERTIES_TAG = 0x32
FLAG_TAG = 0x38
UNIQUE_KEY_TAG = 0x42
BORN_TIME_TAG = 0x4A
RECONSUME_TIMES_TAG = 0x60
SYS_FLAG_TAG = 0x68
BORN_HOST_TAG = 0x72
WIRE_PROPERTIES_TAG = 0x7A
# An entry of NewMessage.properties, and google.protobuf.Timestamp
ENTRY_NAME_TAG = 0x0A
ENTRY_VALUE_TAG = 0x12
SECONDS_TAG = 0x08
NANOS_TAG = 0x10
# AppendMessagesResponse and AppendResult
RESPONSE_RESULTS_TAG = 0x0A
RESULT_OFFSET_MSG_ID_TAG = 0x0A
RESULT_UNIQUE_KEY_TAG = 0x12
RESULT_QUEUE_ID_TAG = 0x18
RESULT_QUEUE_OFFSET_TAG = 0x20
RESULT_COMMIT_LOG_OFFSET_TAG = 0x28
RESULT_STORE_TIME_TAG = 0x32
RESULT_BROKER_NAME_TAG = 0x3A
RESULT_FRESHNESS_TOKEN_TAG = 0x4A

FLUSH_MODE_MAX = 3

# A message or request with more of these is not ordinary.
KEY_COUNT_MAX = 64
PROPERTY_COUNT_MAX = 64
TURN_COUNT_MAX = 64  # topics of one request whose queues are chosen in turn

# Columns of `rows`, one row for each message: the place of its record and of the record's parts, in bytes from the begin of
# the records; fields of the message; numbers that the log gives it.
(
    RECORD_BEGIN,
    RECORD_SIZE,
    TOPIC_NUMBER,
    QUEUE_ID,  # -1 - n: chosen by the n-th turn
    UNIQUE_KEY_BEGIN,
    UNIQUE_KEY_SIZE,
    IS_GENERATED,
    KEY_HASH,
    QUEUE_OFFSET,
    COMMIT_LOG_OFFSET,
    ROW_COLUMN_COUNT,
) = range(11)

# Columns of `turns`: a topic whose queues are chosen in turn, the number of its messages, and the turn of the first.
TURN_TOPIC_NUMBER, TURN_MESSAGE_COUNT, TURN_BEGIN, TURN_COLUMN_COUNT = range(4)

# The most that a message takes in the log beyond its bytes in the request: head, lengths, names, separators, generated
# key, CRC. A scan needs this room for each message.
MESSAGE_OVERHEAD_BYTES_MAX = 256

HASH_START = 0xCBF29CE484222325
HASH_FACTOR = 0x100000001B3
HASH_MASK = (1 << 64) - 1


def hash_bytes(data: bytes) -> int:
    """FNV-1a, 64 bits; for small tables of known names; it does not resist chosen names."""
    value = HASH_START
    for byte in data:
        value = (value ^ byte) * HASH_FACTOR & HASH_MASK
    return value
