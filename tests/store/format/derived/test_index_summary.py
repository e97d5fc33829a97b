"""The summary of an index file as bytes: what it says is what was put in, and damage is seen page by page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.derived import index_summary
from store.format.derived.index_layout import IndexHeader
from store.format.derived.index_summary import (
    BLOCK_SIZE,
    NO_TIMES,
    PAGE_BLOCK_COUNT,
    PAGE_SIZE,
    SALTS,
    SummaryHeader,
    TimeSpan,
    block_count_of,
    block_holds,
    block_of,
    block_place,
    decode_summary_header,
    encode_summary,
    index_header_crc,
    key_bits,
    page_is_sound,
    spread,
)

HEADER = SummaryHeader(0xDEADBEEF, -5, 1_700_000_000_123, 77, 1 << 40, 19_999_999, 300)
BLOCKS = bytes(index % 251 for index in range(300 * BLOCK_SIZE))
FILE = encode_summary(HEADER, BLOCKS)


def pages(data):
    return [data[at : at + PAGE_SIZE] for at in range(0, len(data), PAGE_SIZE)]


def test_the_header_comes_back_and_each_block_lies_where_it_should():
    assert len(FILE) == HEADER.size_bytes == PAGE_SIZE * 4  # 300 blocks: 127, 127 and 46
    assert decode_summary_header(FILE[:PAGE_SIZE]) == HEADER
    for block in range(300):
        number, place = block_place(block)
        page = pages(FILE)[number]
        assert page_is_sound(page, number)
        assert page[place : place + BLOCK_SIZE] == BLOCKS[block * BLOCK_SIZE : (block + 1) * BLOCK_SIZE]
    assert block_place(PAGE_BLOCK_COUNT) == (2, PAGE_SIZE - PAGE_BLOCK_COUNT * BLOCK_SIZE)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("at", [0, 3, 4, 8, 15, 40, 2000, PAGE_SIZE - 1])
def test_a_changed_byte_is_seen_by_its_page_alone(number, at):
    damaged = bytearray(FILE)
    damaged[number * PAGE_SIZE + at] ^= 1

    sound = [page_is_sound(page, index) for index, page in enumerate(pages(bytes(damaged)))]

    assert sound == [index != number for index in range(4)]
    assert (decode_summary_header(bytes(damaged[:PAGE_SIZE])) is None) == (number == 0)


def test_a_page_in_the_place_of_another_or_cut_short_is_not_sound():
    assert not page_is_sound(pages(FILE)[1], 2)
    assert not page_is_sound(FILE[:-1][-PAGE_SIZE + 1 :], 3)
    assert not page_is_sound(b"", 1)
    assert not page_is_sound(bytes(PAGE_SIZE), 1)


def test_another_version_or_kind_of_file_is_no_summary(monkeypatch):
    monkeypatch.setattr(index_summary, "VERSION", 2)
    assert decode_summary_header(FILE[:PAGE_SIZE]) is None
    newer = encode_summary(HEADER, BLOCKS)
    monkeypatch.undo()
    assert decode_summary_header(newer[:PAGE_SIZE]) is None
    monkeypatch.setattr(index_summary, "MAGIC", b"XXXX")
    assert decode_summary_header(FILE[:PAGE_SIZE]) is None


def test_the_bits_of_a_hash_are_splitmix64s():
    """The first values of the generator seeded with 0 and with 1234567, as published with it."""
    assert spread(0) == 0xE220A8397B1DCDAF
    assert spread(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4
    assert spread(1234567) == 6457827717110365317


def split_block(hashes, block_count):
    """The filter by the words of Apache Parquet's BloomFilter.md."""
    words = [[0] * 8 for _ in range(block_count)]
    for hash_ in hashes:
        bits = spread(hash_)
        block = ((bits >> 32) * block_count) >> 32
        for index, salt in enumerate(SALTS):
            words[block][index] |= 1 << (((bits & 0xFFFFFFFF) * salt) % 2**32 >> 27)
    return words


@given(
    hashes=st.lists(st.integers(0, 2**31 - 1), max_size=60),
    asked=st.lists(st.integers(0, 2**31 - 1), max_size=30),
    block_count=st.integers(1, 9),
)
def test_a_block_holds_what_parquets_filter_holds(hashes, asked, block_count):
    words = split_block(hashes, block_count)
    assert all(_holds(words, hash_) for hash_ in hashes)
    for hash_ in asked:
        of_hash = split_block([hash_], block_count)
        number = next(index for index, block in enumerate(of_hash) if any(block))
        expected = all(mine & its == its for mine, its in zip(words[number], of_hash[number], strict=True))
        assert _holds(words, hash_) == expected


def _holds(words, hash_):
    block = words[block_of(spread(hash_), len(words))]
    return block_holds(b"".join(word.to_bytes(4, "little") for word in block), key_bits(hash_))


def test_a_filter_takes_ten_bits_a_key_and_is_never_empty():
    assert [block_count_of(count) for count in (0, 1, 25, 26, 19_999_999)] == [1, 1, 1, 2, 781_250]


def test_spans_grow_and_none_overlaps_nothing():
    assert NO_TIMES.widened(5, 7).widened(3, 4) == TimeSpan(3, 7)
    header = HEADER._replace(begin_time_millis=10, end_time_millis=20)
    seen = {(begin, end): header.overlaps(begin, end) for begin in range(8, 23) for end in range(8, 23)}
    assert seen == {(begin, end): begin <= 20 and end >= 10 for begin, end in seen}
    assert header.time_span == TimeSpan(10, 20)
    nothing = HEADER._replace(begin_time_millis=NO_TIMES.begin_millis, end_time_millis=NO_TIMES.end_millis)
    assert not nothing.overlaps(0, 1 << 62)


def test_a_summary_is_tied_to_the_header_of_its_index_file():
    header = IndexHeader(1, 2, 3, 4, 5, 6)
    others = [header._replace(**{name: 9}) for name in header._fields]
    assert len({index_header_crc(each) for each in (header, *others)}) == 7
