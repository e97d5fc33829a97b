"""DispatchColumns: the same records as one by one, joined, and cut off at the front."""

import dataclasses

import numpy as np
import pytest

from store.derive.dispatch_columns import DispatchColumns
from store.format.properties import LightPlace
from tests.support.dispatches import make_request

REQUESTS = [
    make_request(n, topic=("orders", "payments")[n % 2], keys=["k"] * (n % 3), unique_key="U" * (n % 2), queue_id=n % 4)
    for n in range(8)
]


def values(columns: DispatchColumns) -> list[object]:
    """Every record's fields and its key hashes, whatever numbers topics have."""
    rows = zip(
        [columns.topics[number] for number in columns.topic_numbers],
        *(
            getattr(columns, field.name).tolist()
            for field in dataclasses.fields(columns)
            if isinstance(getattr(columns, field.name), np.ndarray)
            and field.name not in ("topic_numbers", "key_records", "key_hashes")
        ),
        strict=True,
    )
    return [
        (*row, columns.key_hashes[columns.key_records == number].tolist(), columns.last)
        for number, row in enumerate(rows)
    ]


@pytest.mark.parametrize("offset", [-1, 0, 1, 100, 250, 700])
def test_behind_an_offset_stand_the_records_that_start_there_or_later(offset):
    expected = [request for request in REQUESTS if request.commit_log_offset >= offset]

    columns = DispatchColumns.of(REQUESTS).behind(offset)

    assert values(columns) == values(DispatchColumns.of(expected))
    assert columns.first == (REQUESTS[0] if len(expected) == len(REQUESTS) else None)


def test_behind_the_last_record_is_nothing():
    columns = DispatchColumns.of(REQUESTS).behind(701)

    assert (len(columns), len(columns.key_hashes), columns.first, columns.last) == (0, 0, None, None)


@pytest.mark.parametrize("cut", [0, 1, 5, 8])
def test_joined_parts_are_the_whole(cut):
    parts = [DispatchColumns.of(REQUESTS[:cut]), DispatchColumns.of(REQUESTS[cut:])]

    joined = DispatchColumns.joined(parts)

    assert values(joined) == values(DispatchColumns.of(REQUESTS))
    assert (joined.first, joined.last) == (REQUESTS[0], REQUESTS[-1])


LIGHT = [
    make_request(n)._replace(light_places=(LightPlace("%LMQ%a", n), LightPlace("%LMQ%b", 2 * n))[: n % 3])
    for n in range(6)
]


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 6])
def test_units_in_light_queues_stay_with_their_records(cut):
    whole = DispatchColumns.of(LIGHT)
    units = [(unit.queue, unit.queue_offset, unit.commit_log_offset) for unit in whole.light_units]

    assert units == [
        ("%LMQ%a", 1, 100), ("%LMQ%a", 2, 200), ("%LMQ%b", 4, 200), ("%LMQ%a", 4, 400), ("%LMQ%a", 5, 500), ("%LMQ%b", 10, 500)
    ]  # fmt: skip
    assert whole.behind(cut * 100).light_units == DispatchColumns.of(LIGHT[cut:]).light_units
    joined = DispatchColumns.joined([DispatchColumns.of(LIGHT[:cut]), DispatchColumns.of(LIGHT[cut:])])
    assert joined.light_units == whole.light_units
