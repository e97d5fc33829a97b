"""Looking into the summary of a sealed index file (`store/format/index_summary.py`), a page at a time."""

from collections.abc import Callable
from pathlib import Path

from store.errors import RecordNotFoundError
from store.format.index_summary import (
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
from store.readers.open_files import OpenFiles


class IndexSummaryReader:
    """A summary whose header is sound.

    Args:
        files: opens it.
        path: the summary file.
        header: what it says.
        on_damaged: told once a page turns out not to be sound; the summary then says "maybe" to that page's keys.
    """

    def __init__(self, files: OpenFiles, path: Path, header: SummaryHeader, on_damaged: Callable[[], None]) -> None:
        self.path = path
        self.header = header
        self._files = files
        self._on_damaged = on_damaged

    def may_hold(self, key_hash: int) -> bool:
        """Whether the index file may have an entry with that hash; True whenever that cannot be ruled out."""
        key = key_bits(key_hash)
        number, place = block_place(block_of(key.bits, self.header.block_count))
        try:
            page = self._files.get(self.path).read(number * PAGE_SIZE, PAGE_SIZE)
        except FileNotFoundError:  # somebody removed it: its file is searched, and it is made again
            page = b""
        if not page_is_sound(page, number):
            self._on_damaged()
            return True
        return block_holds(page[place : place + BLOCK_SIZE], key)

    def pages(self, first: int, count_max: int) -> bytes:
        """Sound pages of the filter from the one numbered `first` (from 1 on); none behind the last.

        RecordNotFoundError when one of them is not sound: the summary is made again.
        """
        page_count = self.header.size_bytes // PAGE_SIZE
        count = min(count_max, page_count - first)
        if count <= 0:
            return b""
        data = self._files.get(self.path).read(first * PAGE_SIZE, count * PAGE_SIZE)
        for number in range(count):
            if not page_is_sound(data[number * PAGE_SIZE : (number + 1) * PAGE_SIZE], first + number):
                self._on_damaged()
                raise RecordNotFoundError(f"{self.path} is damaged: it is being made again", file=self.path)
        return data


def read_summary_header(files: OpenFiles, path: Path, index_header_crc: int) -> SummaryHeader | None:
    """The header of a summary that is whole as far as its size says, and belongs to the index file with that header.

    None when there is none, or it is damaged, of another version, or of another file.
    """
    try:
        header = decode_summary_header(files.get(path).read(0, PAGE_SIZE))
        size_bytes = files.fs.stat_size(path)
    except FileNotFoundError:
        return None
    if header is None or header.index_header_crc != index_header_crc or header.size_bytes != size_bytes:
        return None
    return header
