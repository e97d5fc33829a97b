"""A record that expired is no loss; one that the log does not have for any other reason is."""

import pytest

from gateway.queries.completeness import was_dropped
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError

OUT_OF_RANGE = OffsetOutOfRangeError("outside", offset=5, firstOffset=1000, lastOffset=2000)


@pytest.mark.parametrize(
    ("error", "offset", "expected"),
    [
        (OUT_OF_RANGE, 0, True),
        (OUT_OF_RANGE, 999, True),
        (OUT_OF_RANGE, 1000, False),
        (OUT_OF_RANGE, 2000, False),
        (OUT_OF_RANGE, 1 << 60, False),
        (OUT_OF_RANGE, -1, False),
        (OffsetOutOfRangeError("without a range"), 0, False),
        (OffsetOutOfRangeError("nonsense", firstOffset="x"), 0, False),
        (RecordNotFoundError("none", firstOffset=1000), 0, False),
        (RecordCorruptedError("damaged", commitLogOffset=0), 0, False),
    ],
)
def test_only_what_lies_before_the_logs_first_record_was_dropped(error, offset, expected):
    assert was_dropped(error, offset) is expected
