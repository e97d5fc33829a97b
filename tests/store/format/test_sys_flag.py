"""The bits of sysFlag."""

import pytest

from store.format.sys_flag import (
    CompressionType,
    TransactionType,
    compression_type,
    host_flags,
    is_compressed,
    transaction_type,
)


@pytest.mark.parametrize(
    ("sys_flag", "expected"),
    [
        (0x0, TransactionType.NONE),
        (0x4, TransactionType.PREPARED),
        (0x8, TransactionType.COMMIT),
        (0xC, TransactionType.ROLLBACK),
        (0x7F3, TransactionType.NONE),
        (-1, TransactionType.ROLLBACK),
    ],
)
def test_transaction_type_reads_two_bits(sys_flag: int, expected: TransactionType) -> None:
    assert expected is transaction_type(sys_flag)


@pytest.mark.parametrize(
    ("sys_flag", "expected"),
    [
        (0x000, None),
        (0x300, None),
        (0x001, CompressionType.ZLIB_UNMARKED),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
        (0x401, None),
    ],
)
def test_compression_type_counts_only_with_the_compressed_bit(sys_flag: int, expected: CompressionType | None) -> None:
    assert expected is compression_type(sys_flag)
    assert bool(sys_flag & 1) == is_compressed(sys_flag)


def test_each_host_has_its_own_flag_for_ipv6() -> None:
    assert [host_flags(born_v6=b, store_v6=s) for s in (False, True) for b in (False, True)] == [0, 0x10, 0x20, 0x30]
