"""Which records get a queue unit, and what it says."""

import struct

import pytest

from store.derive.queue_units import place_unit
from tests.support.dispatches import make_request


@pytest.mark.parametrize("sys_flag", [0, 0x8, 0x1, 0x30, 0x38])
def test_plain_and_committed_records_have_a_unit(sys_flag):
    placed = place_unit(make_request(7, queue_id=3, queue_offset=5, sys_flag=sys_flag))

    assert placed == ("orders", 3, 5, struct.pack(">qiq", 700, 100, 7))


@pytest.mark.parametrize("sys_flag", [0x4, 0xC, 0x34, 0x3C])
def test_prepared_and_rolled_back_records_have_none(sys_flag):
    assert place_unit(make_request(7, sys_flag=sys_flag)) is None
