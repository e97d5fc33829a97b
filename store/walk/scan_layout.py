"""The tables that `scan_kernel.py` fills: what stands in which row.

Positions are in the bytes that were given, sizes in bytes, times in milliseconds since 1970 UTC.
"""

# How much of a record must be right for the walk to pass it.
LENGTHS, PLACE, SUMS = range(3)
# Rows of the tables that `fill_rows` fills. Positions are in `data`, sizes in bytes.
(
    SIZE, BODY_CRC, QUEUE_ID, FLAG, SYS_FLAG, RECONSUME_TIMES, BODY_SIZE, PROPERTIES_SIZE, TOPIC, BORN_HOST, STORE_HOST,
    IS_DOUBTFUL, ROW_COUNT_32,
) = range(13)  # fmt: skip
AT, BODY_AT, QUEUE_OFFSET, STATED_OFFSET, BORN_TIME, STORE_TIME, PREPARED_OFFSET, ROW_COUNT_64 = range(8)
# Rows of a table of names: distinct stretches of `data`, numbered as they come.
NAME_AT, NAME_SIZE, NAME_ROW_COUNT = range(3)
NAME_COUNT_MAX = 4096
NAME_SLOT_COUNT = 4 * NAME_COUNT_MAX  # a power of two
# Rows of the table that `find_properties` fills; a size of -1 where there is no such property.
TAGS_AT, TAGS_SIZE, KEYS_AT, KEYS_SIZE, UNIQUE_KEY_AT, UNIQUE_KEY_SIZE, TAGS_HASH, SPAN_ROW_COUNT = range(8)
# What it says of a row.
PLAIN, NOT_ASCII, TOO_MANY = range(3)
# Rows of the table of all properties, and of that of single keys.
PROPERTY_NAME_AT, PROPERTY_NAME_SIZE, VALUE_AT, VALUE_SIZE, PROPERTY_ROW_COUNT = range(5)
KEY_AT, KEY_SIZE, KEY_ROW_COUNT = range(3)
# Each new property is compared with those before it: more than this many in one record are left to a dictionary.
PROPERTY_COUNT_MAX = 64

# Rows of the table of `mark_frames`: what a block holds of the records that start in it.
MARK_OFFSET, MARK_RECORD_COUNT, MARK_TIME_MIN, MARK_TIME_MAX, MARK_ROW_COUNT = range(5)

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
