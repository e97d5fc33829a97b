"""How the index entries of a log are divided into files.

Rules, from `IndexService` of RocketMQ 5.3.3:
- A file takes one entry less than its maxIndexNum, because entry 0 is never used.
- The next file is created by the next *record* after the newest file is full, also by a record without keys. The first
  record of a store creates the first file in the same way.
- The entries of one record may lie in two files.

How a file is filled stands in `index_state.py`.
"""


def entries_per_file(entry_count_max: int) -> int:
    """Entries that fit into a file; `entry_count_max` is RocketMQ's maxIndexNum."""
    return entry_count_max - 1


def is_followed(last_record_offset: int, last_key_offset: int) -> bool:
    """Whether a record without keys follows the last record with keys.

    Args:
        last_record_offset: where the log's last record starts (bytes); -1 if there is none.
        last_key_offset: where the last record with keys starts (bytes); -1 if there is none.
    """
    return last_record_offset > last_key_offset


def index_file_count(entry_count: int, entry_count_max: int, *, is_followed: bool) -> int:
    """How many files the entries of a whole log make.

    Args:
        entry_count: of the log.
        entry_count_max: RocketMQ's maxIndexNum.
        is_followed: whether a record without keys follows the last record with keys.
    """
    per_file = entries_per_file(entry_count_max)
    file_count = -(-entry_count // per_file)
    is_full = entry_count == file_count * per_file
    return file_count + (is_full and is_followed)
