"""The entries that RocketMQ 5.5.0 writes for the tags of records, among those of their keys."""

from pathlib import Path

from store.derive.dispatch_columns import DispatchColumns
from store.format.derived.index_layout import index_key, key_hash, tag_key
from tests.support.dispatches import make_request, requests_of

ROLLED_BACK = 0xC


def test_with_tags_puts_the_hash_of_the_tags_behind_the_keys_of_its_record(rocketmq_5_5_store: Path) -> None:
    requests = requests_of(rocketmq_5_5_store)
    columns = DispatchColumns.of(requests).with_tags()
    expected = []
    for number, request in enumerate(requests):
        if request.sys_flag & ROLLED_BACK == ROLLED_BACK:
            continue
        keys = [*([request.unique_key] if request.unique_key else []), *request.keys]
        keys += [tag_key(request.tags)] if request.tags else []
        expected += [(number, key_hash(index_key(request.topic, key))) for key in keys]
    assert list(zip(columns.key_records.tolist(), columns.key_hashes.tolist(), strict=True)) == expected


def test_columns_without_tags_are_the_same_with_tags() -> None:
    columns = DispatchColumns.of([make_request(1, keys=["a"]), make_request(2)])
    assert columns.with_tags() is columns


def test_with_tags_from_an_offset_on_leaves_the_records_before_it_as_they_are(rocketmq_5_5_store: Path) -> None:
    requests = requests_of(rocketmq_5_5_store)
    cut = len(requests) // 2
    some = DispatchColumns.of(requests).with_tags(requests[cut].commit_log_offset)
    parts = DispatchColumns.joined([DispatchColumns.of(requests[:cut]), DispatchColumns.of(requests[cut:]).with_tags()])
    assert some.key_hashes.tolist() == parts.key_hashes.tolist()
    assert some.key_records.tolist() == parts.key_records.tolist()
