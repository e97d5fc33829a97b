"""Reads the summary of a sealed index file (`store/format/derived/index_summary.py`), one page at a time."""

from collections.abc import Callable
from pathlib import Path

from store.errors import RecordNotFoundError
from store.files.open_files import OpenFiles
from store.format.derived.index_summary import (
    BLOCK_SIZE,
    PAGE_SIZE,
    SummaryHeader,
    block_holds,
    block_of,
    block_place,
    decode_summary_header,
    key_bits,
    page_is_sound,
)


class IndexSummaryReader:
    """A summary with a valid header.

    Args:
        files: opens it.
        path: the summary file.
        header: of the summary.
        on_damaged: called when a page is damaged; the answer for the keys of that page is then "maybe".
    """

    def __init__(self, files: OpenFiles, path: Path, header: SummaryHeader, on_damaged: Callable[[], None]) -> None:
        self.path = path
        self.header = header
        self._files = files
        self._on_damaged = on_damaged

    def may_hold(self, key_hash: int) -> bool:
        """Whether the index file may have an entry with this hash; False only if it has none."""
        key = key_bits(key_hash)
        number, place = block_place(block_of(key.bits, self.header.block_count))
        try:
            page = self._files.get(self.path).read(number * PAGE_SIZE, PAGE_SIZE)
        except FileNotFoundError:  # it was removed: the file is searched, and the summary is made again
            page = b""
        if not page_is_sound(page, number):
            self._on_damaged()
            return True
        return block_holds(page[place : place + BLOCK_SIZE], key)

    def pages(self, first: int, count_max: int) -> bytes:
        """Pages of the filter, from number `first` on (the first is 1), at most `count_max`; empty behind the last.

        Raises:
            RecordNotFoundError: one of them is damaged; the summary is made again.
        """
        page_count = self.header.size_bytes // PAGE_SIZE
        count = min(count_max, page_count - first)
        if count <= 0:
            return b""
        data = self._files.get(self.path).read(first * PAGE_SIZE, count * PAGE_SIZE)
        for number in range(count):
            if not page_is_sound(data[number * PAGE_SIZE : (number + 1) * PAGE_SIZE], first + number):
                self._on_damaged()
                raise RecordNotFoundError(
                    f"{self.path} is damaged: it is being made again, try again soon", file=self.path
                )
        return data


def read_summary_header(files: OpenFiles, path: Path, index_header_crc: int) -> SummaryHeader | None:
    """The header of a summary that has its full size and belongs to the index file whose header has this CRC.

    None if there is no summary, or if it is damaged, of another version, or of another file.
    """
    try:
        header = decode_summary_header(files.get(path).read(0, PAGE_SIZE))
        size_bytes = files.fs.stat_size(path)
    except FileNotFoundError:
        return None
    if header is None or header.index_header_crc != index_header_crc or header.size_bytes != size_bytes:
        return None
    return header
