"""The fingerprint of a record tells it from every other, and stays as checkpoints of older versions have it."""

import pytest

from store.derive.dispatch import LastRecord, fingerprint
from tests.support.dispatches import make_request

REQUEST = make_request(7, keys=("k",), unique_key="U", queue_id=2)


def test_a_checkpoint_of_an_older_version_knows_its_record():
    assert LastRecord.of(REQUEST) == LastRecord(700, 2382472590)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "other"}, {"queue_id": 3}, {"queue_offset": 8}, {"commit_log_offset": 701}, {"record_size_bytes": 101},
        {"tags_code": 8}, {"store_time_millis": 1}, {"unique_key": "V"},
    ],
)  # fmt: skip
def test_each_field_counts_in_the_fingerprint(change):
    assert fingerprint(REQUEST._replace(**change)) != fingerprint(REQUEST)
