"""DispatchRequest: the fields of a record that the builders need; nothing of its body."""

from typing import NamedTuple


class DispatchRequest(NamedTuple):
    """One record of the log, as Reput gives it to the builders.

    A named tuple, not a frozen dataclass: one is made for each record, and the tuple takes 0.2 us, the dataclass 1.1 us
    (the whole decoding takes 2 us).

    Attributes:
        topic: the topic's name.
        queue_id: the queue within the topic.
        queue_offset: position in the queue, in units.
        commit_log_offset: the record's first byte in the log.
        record_size_bytes: the record's whole length.
        tags_code: of its queue unit (`queue_unit.tags_code`).
        store_time_millis: since 1970 UTC.
        keys: KEYS, split at spaces; repeats are kept.
        unique_key: UNIQ_KEY, or empty.
        sys_flag: see `format/sys_flag.py`; says whether the record has a queue unit and index entries.
        prepared_transaction_offset: commit-log offset of the prepared record, else 0.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int
    store_time_millis: int
    keys: tuple[str, ...]
    unique_key: str
    sys_flag: int
    prepared_transaction_offset: int

    @property
    def next_offset(self) -> int:
        """The first byte behind the record."""
        return self.commit_log_offset + self.record_size_bytes
