"""When a message of the timer topic is due: never before the second of its slot is over, unless its time is known exactly."""

import pytest

from store.format.delivery.timer_due import timer_due_millis

SLOT = 60_000


@pytest.mark.parametrize(
    ("properties", "due_millis"),
    [
        ({"TIMER_OUT_MS": "60000", "TIMER_DELIVER_MS": "60096"}, 60_096),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELIVER_MS": "61000"}, 61_000),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELIVER_MS": "60000"}, 61_000),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELIVER_MS": "61001"}, 61_000),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELIVER_MS": "soon"}, 61_000),
        ({"TIMER_OUT_MS": "60000"}, 61_000),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELAY_MS": "500"}, 60_500),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELAY_MS": "0"}, 60_001),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELAY_SEC": "9", "TIMER_DELAY_MS": "5"}, 61_000),
        ({"TIMER_OUT_MS": "60000", "TIMER_DELAY_SEC": "x"}, 61_000),
        ({"TIMER_DELIVER_MS": "60096"}, None),
        ({"TIMER_OUT_MS": "-1"}, None),
        ({"TIMER_OUT_MS": "1" * 15}, None),
        ({"TIMER_OUT_MS": "\u0661"}, None),
    ],
)
def test_the_time_of_a_record_counts_where_it_fits_its_slot(properties: dict[str, str], due_millis: int | None) -> None:
    assert timer_due_millis(properties, store_time_millis=SLOT) == due_millis
