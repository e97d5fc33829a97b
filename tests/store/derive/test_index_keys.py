"""Which keys of a record are indexed."""

import pytest

from store.derive.index_keys import NO_TAGS, index_hashes, index_keys, tags_hash
from tests.store.derive import oracle
from tests.support.dispatches import make_request


def test_the_unique_key_comes_first_and_repeats_stay():
    request = make_request(0, keys=("b", "a", "b"), unique_key="U")

    assert index_keys(request) == ["orders#U", "orders#b", "orders#a", "orders#b"]


def test_a_record_without_keys_has_none():
    assert index_keys(make_request(0)) == []


@pytest.mark.parametrize(("sys_flag", "is_indexed"), [(0x0, True), (0x4, True), (0x8, True), (0xC, False)])
def test_only_rolled_back_records_are_left_out(sys_flag, is_indexed):
    assert bool(index_keys(make_request(0, keys=("a",), sys_flag=sys_flag))) is is_indexed


def test_each_key_has_its_hash():
    request = make_request(0, keys=("b", "订单", "b"), unique_key="U")

    assert index_hashes(request) == [
        oracle.key_hash(key) for key in ("orders#U", "orders#b", "orders#订单", "orders#b")
    ]


@pytest.mark.parametrize(
    ("tags", "sys_flag", "is_indexed"), [("paid", 0x8, True), ("", 0x0, False), ("paid", 0xC, False)]
)
def test_the_tags_of_a_record_have_the_entry_that_rocketmq_5_5_writes_last(tags, sys_flag, is_indexed):
    expected = oracle.key_hash("orders#T#paid") if is_indexed else NO_TAGS
    assert tags_hash(make_request(0, sys_flag=sys_flag)._replace(tags=tags)) == expected
