"""The end of the last whole request: a log whose last request was torn by a crash ends there.

Writes are sequential, and a recovery cuts what it does not keep. So only the last request of a log can be incomplete, and
only after an unclean stop. Its records have a mark (`store/format/request_mark.py`): the last record that is left says
whether records of its request are missing behind it, and where the request begins.

    ... | record | request: record 1 | record 2 | (record 3: torn) | zeros
                 ^ the log is cut here
"""

from collections.abc import Iterable, MutableMapping

from commitlog_svc.append.topics.queue_offsets import QueueKey
from store.derive.queue_placement import NO_UNIT_BIT
from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFileQueue
from store.format.record import Record, decode_header, decode_record
from store.format.record_layout import HEADER_BYTES_MAX
from store.format.request_mark import TAIL_SIZE_BYTES, RequestMark, decode_request_mark

Place = tuple[int, int]  # offset and size of a record


class RequestEnds:
    """Follows a walk and knows where the last whole request before its position ends.

    Args:
        files: the log's files.
        begin_offset: where the walk begins; a request ends there.
        last_record: the record before it; None when not known.
    """

    def __init__(self, files: MappedFileQueue, begin_offset: int, last_record: Place | None) -> None:
        self._files = files
        self._begin_offset = self._known_end = begin_offset
        self._known_record = last_record

    def end_before(self, offset: int, last_record: Place | None) -> int:
        """The end of the last request that is known to be whole before `offset`; never before an earlier answer.

        Args:
            offset: the walk's position.
            last_record: the last record that the walk has seen; None before the first.
        """
        if self._unfinished_mark(offset, last_record) is not None:
            return self._known_end  # not what the mark says: the record may not stand in its request any more
        self._known_end, self._known_record = offset, last_record or self._known_record
        return offset

    def incomplete_request(self, end_offset: int, last_record: Place | None) -> list[Record]:
        """The records of the request that the log's end at `end_offset` cuts apart; empty when there is none.

        Marks that contradict one another were written by another program; they are ignored.
        """
        mark = self._unfinished_mark(end_offset, last_record)
        if mark is None or last_record is None:
            return []
        begin_offset = offset = last_record[0] - mark.before_bytes
        request_bytes = mark.before_bytes + last_record[1] + mark.behind_bytes
        records = []
        try:
            while offset < end_offset:
                size_bytes = self._read_size(offset)
                before_bytes = offset - begin_offset
                expected = RequestMark(before_bytes, request_bytes - before_bytes - size_bytes)
                if self._read_mark((offset, size_bytes)) != expected:
                    return []
                records.append(decode_record(self._files.read(offset, size_bytes), commit_log_offset=offset))
                offset += size_bytes
        except RecordCorruptedError:
            return []
        return records

    def last_record_before(self, end_offset: int) -> Place | None:
        """The record before the end of a whole request; None when not known."""
        offset, found = self._known_end, self._known_record
        while offset < end_offset:
            file = self._files.find(offset)
            assert file is not None, offset
            if decode_header(file.read(offset, HEADER_BYTES_MAX), 0, offset).is_blank:
                offset = file.last_offset
            else:
                found = offset, self._read_size(offset)
                offset += found[1]
        return found

    def _unfinished_mark(self, end_offset: int, last_record: Place | None) -> RequestMark | None:
        """The last record's mark, when it says that the request goes on behind `end_offset`."""
        if last_record is None or sum(last_record) != end_offset:
            return None
        mark = self._read_mark(last_record)
        if mark is None or mark.behind_bytes == 0 or last_record[0] - mark.before_bytes < self._begin_offset:
            return None
        record = decode_record(self._files.read(*last_record), commit_log_offset=last_record[0])
        return None if record.has_copied_crc else mark  # a broker's copy of a record has the mark of that one

    def _read_mark(self, place: Place) -> RequestMark | None:
        return decode_request_mark(self._files.read(sum(place) - TAIL_SIZE_BYTES, TAIL_SIZE_BYTES))

    def _read_size(self, offset: int) -> int:
        return decode_header(self._files.read(offset, HEADER_BYTES_MAX), 0, offset).size_bytes


def forget_queue_offsets(records: Iterable[Record], queue_offsets: MutableMapping[QueueKey, int]) -> None:
    """Sets the next offsets of queues back to before these records, which are the last of the log, in log order."""
    seen: set[QueueKey] = set()
    for record in records:
        queue = record.topic, record.queue_id
        if queue in seen or record.sys_flag & NO_UNIT_BIT:
            continue
        seen.add(queue)
        queue_offsets[queue] = record.queue_offset
        if record.queue_offset == 0:
            del queue_offsets[queue]
