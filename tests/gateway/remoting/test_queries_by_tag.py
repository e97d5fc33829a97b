"""Messages by their tags over the door of a store that RocketMQ 5.5.0 wrote, with what its mqadmin printed."""

import contextlib
import shutil

import pytest

from gateway.remoting.door import MAY_PASS
from services.rocketmq.codes import RequestCode, ResponseCode
from store.format.record import decode_record
from tests.cli.test_fsck_5_5 import with_tags_from_the_middle_on
from tests.gateway.remoting.conftest import DoorStack
from tests.gateway.remoting.test_queries import ALWAYS, records_of
from tests.index_svc.test_tag_entries import saved_tags_from
from tests.support.fixture_stores import walk_frames
from tests.support.waiting import wait_until

TOPIC = "a_order"
# `mqadmin queryMsgByKey -t a_order -k TagA -p T`: the last part of its column #IndexKey.
OF_TAG_A = [0, 17535, 18364, 18975, 83458]
HOUR_AND_KEY = "1795975200000@a_order@T@TagA@FD00000000000000000000000000000256D85FFD2B279435CFDC0000"


@pytest.fixture(scope="module")
def stack(rocketmq_5_5_store, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tags")
    shutil.copytree(rocketmq_5_5_store, directory / "store")
    for path in (directory / "store").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with contextlib.closing(DoorStack(directory)) as stack:
        yield stack


def by_tag(client, tags, count=64, topic=TOPIC, **more):
    fields = {**ALWAYS, "indexType": "T", **more}
    return client.call(RequestCode.QUERY_MESSAGE, topic=topic, key=tags, maxNum=count, **fields)


def offsets(answer):
    return [record.commit_log_offset for record in records_of(answer)]


def test_the_messages_of_a_tag_are_those_that_mqadmin_found(client):
    assert offsets(by_tag(client, "TagA")) == OF_TAG_A
    assert offsets(by_tag(client, "TagA", count=2)) == OF_TAG_A[-2:]
    assert by_tag(client, "Tag").code == ResponseCode.QUERY_NOT_FOUND
    assert by_tag(client, "TagA", endTimestamp=1).code == ResponseCode.QUERY_NOT_FOUND


def offsets_by_tags(store):
    """The offsets of each topic's messages with each tags."""
    found = {}
    for offset, frame in walk_frames(store):
        record = decode_record(frame, commit_log_offset=offset)
        if record.topic.startswith("a_") and record.tags:
            found.setdefault((record.topic, record.tags), []).append(offset)
    return found


def test_each_tag_of_each_topic_is_found_as_in_the_log(client, rocketmq_5_5_store):
    wanted = offsets_by_tags(rocketmq_5_5_store)
    assert len(wanted) > 15
    for (topic, tags), expected in wanted.items():
        assert offsets(by_tag(client, tags, topic=topic)) == expected[-64:], (topic, tags)


def test_pages_go_on_with_older_messages_behind_the_last_key(client):
    assert offsets(by_tag(client, "TagA", count=2, lastKey=f"{HOUR_AND_KEY}@18975")) == OF_TAG_A[1:3]
    assert offsets(by_tag(client, "TagA", count=2, lastKey=f"{HOUR_AND_KEY}@17535")) == OF_TAG_A[:1]
    assert by_tag(client, "TagA", lastKey=f"{HOUR_AND_KEY}@0").code == ResponseCode.QUERY_NOT_FOUND
    for wrong in ("18975", f"{HOUR_AND_KEY}@-1", f"{HOUR_AND_KEY}@x", f"{HOUR_AND_KEY}@{'9' * 20}"):
        refused = by_tag(client, "TagA", lastKey=wrong)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "lastKey" in refused.remark


@pytest.mark.parametrize("index_type", ["T", "K"])
def test_pages_of_both_doors_go_over_all_index_files_down_to_the_first_message(
    client, stack, rocketmq_5_5_store, index_type
):
    """`lastKey` is what mqadmin prints as #IndexKey of the first message of the page before; our contract has a token."""
    assert len(list((rocketmq_5_5_store / "index").iterdir())) == 6
    wanted = offsets_by_tags(rocketmq_5_5_store) if index_type == "T" else offsets_by_keys(rocketmq_5_5_store)
    topic, key = max(wanted, key=lambda each: wanted[each][-1] - wanted[each][0])
    expected = wanted[topic, key]
    assert len(expected) > 2
    found, last_key = [], {}
    while (answer := by_tag(client, key, count=1, topic=topic, indexType=index_type, **last_key)).code == 0:
        page = offsets(answer)
        found = page + found
        last_key = {"lastKey": f"1795975200000@{topic}@{index_type}@{key}@unique@{page[0]}"}
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert found == expected
    query = stack.store.by_tag if index_type == "T" else stack.store.by_key
    assert [each.commit_log_offset for each in query(topic, key, page_size=1)] == expected[::-1]


def offsets_by_keys(store):
    """The offsets of each topic's messages with each key."""
    found = {}
    for offset, frame in walk_frames(store):
        record = decode_record(frame, commit_log_offset=offset)
        for key in set(record.keys) if record.topic.startswith("a_") else ():
            found.setdefault((record.topic, key), []).append(offset)
    return found


def test_a_message_that_was_just_sent_is_found_by_its_tags(client, stack):
    (receipt,) = stack.append(TOPIC, tags="new tags")
    wait_until(lambda: by_tag(client, "new tags").code == ResponseCode.SUCCESS, "the index is built")
    assert offsets(by_tag(client, "new tags")) == [receipt.commit_log_offset]


def test_an_index_type_that_rocketmq_does_not_have_is_refused_by_name(client):
    refused = by_tag(client, "TagA", indexType="X")
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "indexType 'X'" in refused.remark


def test_an_index_whose_older_messages_have_no_entries_of_tags_says_so_with_a_part_and_for_good_without(
    rocketmq_5_5_store, tmp_path
):
    store = with_tags_from_the_middle_on(rocketmq_5_5_store, tmp_path / "store")
    wanted = offsets_by_tags(store)
    tags_from = saved_tags_from(store)
    newer = {key: [each for each in expected if each >= tags_from] for key, expected in wanted.items()}
    with contextlib.closing(DoorStack(tmp_path)) as stack, contextlib.closing(stack.client()) as client:
        for (topic, tags), expected in newer.items():
            answer = by_tag(client, tags, topic=topic)
            assert f"before byte {tags_from} of the log" in answer.remark
            if expected:
                assert answer.code == ResponseCode.SUCCESS
                assert offsets(answer) == expected[-64:]
                assert answer.remark.startswith("messages may be missing")
            else:
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert answer.code not in MAY_PASS
    assert {bool(expected) for expected in newer.values()} == {True, False}
