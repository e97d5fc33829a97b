"""Topic names, and the topic table in RocketMQ's form.

Patterns of names: `*` stands for any characters.
"""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidMessageError, StoreCorruptedError
from store.format.topic import (
    LIGHT_QUEUE_NAME_BYTES_MAX,
    DataVersion,
    TopicConfig,
    UnreadableRow,
    can_be_light_queue,
    dead_letter_topic_of,
    decode_data_version,
    decode_deleted_topics,
    decode_topic_rows,
    decode_topic_table,
    dump_topic_table,
    encode_topic_table,
    has_light_units,
    is_system_group,
    is_system_topic,
    lite_expiration_minutes_of,
    lite_parent_of,
    lite_queue_name,
    lite_topic_of,
    name_matcher,
    namespace_of,
    next_topic_members,
    popped_topic_of,
    pull_retry_topic_of,
    reply_topic_of,
    retry_topic_of,
    retry_topic_v2_of,
    split_lite_queue,
    validate_topic,
)


@pytest.mark.parametrize(
    "name",
    ["a", "order_Topic-1", "%RETRY%grp", "a|b", "x" * 127, "%RETRY%" + "x" * 248, "%DLQ%" + "x" * 250, "%"],
)
def test_names_that_rocketmq_takes(name: str) -> None:
    validate_topic(name)


@pytest.mark.parametrize(
    "name",
    ["", " ", "\t", "a b", "订单", "../../x", "a/b", ".", "..", "a.b", "a\n", "a\0", "x" * 128, "%RETRY%" + "x" * 249,
     "%DLQ%" + "x" * 251, "a#b", "a\x01", "１"],
)  # fmt: skip
def test_names_that_rocketmq_refuses(name: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        validate_topic(name)
    assert caught.value.metadata["field"] == "topic"


def test_system_topics_are_those_of_rocketmqs_topic_validator() -> None:
    """`SYSTEM_TOPIC_SET` and `SYSTEM_TOPIC_PREFIX` of 5.5.0."""
    names = [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    ]

    assert all(map(is_system_topic, names))
    assert not any(map(is_system_topic, ("Orders", "%RETRY%g", "%DLQ%g", "RMQ_SYS_OTHER", "a_rmq_sys_", "tbw102")))


def test_table_of_rocketmq_is_read(broker_store: Path) -> None:
    topics = decode_topic_table((broker_store / "config" / "topics.json").read_bytes())

    assert TopicConfig("b_order", 4, 4) == topics["b_order"]
    assert TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18) == topics["SCHEDULE_TOPIC_XXXX"]
    assert topics["%RETRY%b_cg"].read_queue_count == 1


def test_table_of_rocketmq_comes_back_to_the_byte_but_for_its_version(broker_store: Path) -> None:
    data = (broker_store / "config" / "topics.json").read_bytes()
    version = json.loads(data)["dataVersion"]
    encoded = encode_topic_table(decode_topic_table(data), data, time_millis=5)

    assert {**version, "counter": version["counter"] + 1, "timestamp": 5} == json.loads(encoded)["dataVersion"]
    restored = encoded.replace(b'"timestamp":5', b'"timestamp":%d' % version["timestamp"])
    restored = restored.replace(b'"counter":%d' % (version["counter"] + 1), b'"counter":%d' % version["counter"])
    assert data == restored


def test_first_table_has_a_version() -> None:
    topic = TopicConfig("t", 8, 8)
    document = json.loads(encode_topic_table({"t": topic}, None, time_millis=7))

    assert document["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 7}
    expected = {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": 8, "topicFilterType": "SINGLE_TAG",
        "topicName": "t", "topicSysFlag": 0, "writeQueueNums": 8,
    }  # fmt: skip
    assert {"t": expected} == document["topicConfigTable"]


_texts = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from('"\\\n\t{}:,'), max_size=8)
_configs = st.builds(
    TopicConfig,
    st.sampled_from(["t", "u", 'topicName":""', "订单", 'a\nb"c']),
    st.sampled_from([4, 8]),
    st.sampled_from([4, 8]),
    order=st.booleans(),
    topic_filter_type=_texts,
    attributes=st.dictionaries(_texts, _texts, max_size=2),
    other=st.just({}) | st.dictionaries(_texts, st.lists(_texts, max_size=2), max_size=2),
)


@given(
    st.dictionaries(_texts, st.recursive(_texts, lambda each: st.dictionaries(_texts, each, max_size=2)), max_size=2),
    st.lists(_configs, max_size=5),
    st.dictionaries(_texts, _texts | st.lists(st.integers()), max_size=2),
    st.booleans(),
)
def test_rows_are_laid_out_as_the_members_around_them(
    members: dict[str, object], configs: list[TopicConfig], unreadable: dict[str, object], with_other_names: bool
) -> None:
    document = next_topic_members({**members, "nested": {"topicConfigTable": {}}}, 7, None)
    topics = {config.topic + "x" * with_other_names: config for config in configs}
    rows = {name: UnreadableRow(value, "") for name, value in unreadable.items()}
    names = {
        "topicName": "topic", "readQueueNums": "read_queue_count", "writeQueueNums": "write_queue_count", "perm": "perm",
        "topicFilterType": "topic_filter_type", "topicSysFlag": "topic_sys_flag", "order": "order", "attributes": "attributes",
    }  # fmt: skip
    table: dict[str, object] = {
        name: dict(sorted({**config.other, **{key: getattr(config, each) for key, each in names.items()}}.items()))
        for name, config in topics.items()
    }
    table |= {name: value for name, value in unreadable.items() if name not in topics}

    expected = json.dumps(
        {**document, "topicConfigTable": table}, indent="\t", separators=(",", ":"), ensure_ascii=False
    )
    assert expected.encode() == dump_topic_table(document, topics, rows)


def test_unknown_fields_survive_a_rewrite() -> None:
    data = json.dumps(
        {
            "dataVersion": {"counter": 3, "stateVersion": 9, "timestamp": 1, "later": True},
            "topicConfigTable": {
                "t": {"topicName": "t", "readQueueNums": 2, "writeQueueNums": 3, "perm": 4, "new": [1]}
            },
            "elsewhere": {"x": 1},
        }
    )
    topics = decode_topic_table(data)
    document = json.loads(encode_topic_table({**topics, "u": TopicConfig("u", 8, 8)}, data, time_millis=2))

    assert TopicConfig("t", 2, 3, perm=4, other={"new": [1]}) == topics["t"]
    assert document["elsewhere"] == {"x": 1}
    assert document["dataVersion"] == {"counter": 4, "stateVersion": 9, "timestamp": 2, "later": True}
    assert document["topicConfigTable"]["t"]["new"] == [1]
    assert "u" in document["topicConfigTable"]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"\xff", b'{"topicConfigTable":[]}', b'{"topicConfigTable":{"t":1}}',
        b'{"topicConfigTable":{"t":{"readQueueNums":"8"}}}', b'{"topicConfigTable":{"t":{"perm":true}}}',
    ],
)  # fmt: skip
def test_malformed_table_is_named(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError) as caught:
        decode_topic_table(data)
    assert caught.value.metadata["file"] == "config/topics.json"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("t", 1, "it is not an object"),
        ("t", {"perm": True}, "perm is 'True'"),
        ("t", {"topicName": "u"}, "topicName is 'u'"),
        ("t", {"attributes": {"message.type": 5}}, "an attribute is not a text"),
        ("", {}, "its name has 0 characters"),
        ("n" * 256, {}, "its name has 256 characters"),
        ("\ud800", {}, "surrogates not allowed"),
    ],
)
def test_a_malformed_row_is_set_apart_and_written_as_it_was(name: str, value: object, problem: str) -> None:
    data = json.dumps({"topicConfigTable": {name: value, "sound": {"topicName": "sound", "perm": 4}}})
    topics, unreadable = decode_topic_rows(data)

    assert topics == {"sound": TopicConfig("sound", 16, 16, perm=4)}
    assert problem in unreadable[name].problem
    kept = json.loads(encode_topic_table({**topics, "new": TopicConfig("new", 8, 8)}, data, unreadable, time_millis=1))
    assert kept["topicConfigTable"][name] == value
    assert kept["topicConfigTable"].keys() == {name, "sound", "new"}
    with pytest.raises(StoreCorruptedError):
        decode_topic_table(data)


def test_groups_and_topics_of_the_broker_and_of_replies_have_rocketmqs_names() -> None:
    """As `MixAll` of RocketMQ 5.3.3 makes them."""
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("billing")
    assert reply_topic_of("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


def test_the_topics_of_a_group_have_rocketmqs_names() -> None:
    """As `KeyBuilder` and `MixAll` of RocketMQ 5.3.3 make them."""
    assert retry_topic_of("g", "T") == "%RETRY%g_T"
    assert retry_topic_v2_of("g", "T") == "%RETRY%g+T"
    assert pull_retry_topic_of("g") == "%RETRY%g"
    assert dead_letter_topic_of("g") == "%DLQ%g"
    for topic in ("T", retry_topic_of("g", "T"), retry_topic_v2_of("g", "T")):
        assert popped_topic_of("g", topic) == "T"
    assert popped_topic_of("g", retry_topic_of("h", "T")) == "%RETRY%h_T"


def test_the_name_of_a_light_queue_is_refused_as_unsupported() -> None:
    with pytest.raises(InvalidMessageError, match="light queue") as caught:
        validate_topic("%LMQ%device-1")
    assert caught.value.metadata["field"] == "topic"


def test_where_deleted_topics_ended_is_written_beside_the_topics_and_kept() -> None:
    first = encode_topic_table({}, None, time_millis=1, deleted={"Orders": 4_711})
    assert decode_deleted_topics(first) == {"Orders": 4_711}
    assert decode_deleted_topics(encode_topic_table({}, first, time_millis=2)) == {"Orders": 4_711}
    assert decode_deleted_topics(encode_topic_table({}, first, time_millis=2, deleted={})) == {}


@pytest.mark.parametrize("member", ["3", "[]", '{"deletedTopics": 3}', '{"deletedTopics": {"Orders": "x", "Paid": 0}}'])
def test_a_member_of_another_shape_names_no_deleted_topic(member: str) -> None:
    assert decode_deleted_topics(f'{{"topicConfigTable": {{}}, "reput": {member}}}') == {}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["Orders"], {"Orders"}),
        (["Ord*"], {"Orders", "Ord"}),
        (["*ers", "Ord"], {"Orders", "Ord"}),
        (["*"], {"Orders", "Ord", "a.b", "a\nb", ""}),
        (["a.b"], {"a.b"}),
        ([], set()),
    ],
)
def test_a_name_fits_a_pattern_whole_and_nothing_but_the_star_is_special(patterns: list[str], names: set[str]) -> None:
    fits = name_matcher(patterns).fullmatch
    assert {name for name in ("Orders", "Ord", "a.b", "aXb", "a\nb", "") if fits(name)} - {"aXb"} == names
    assert bool(fits("aXb")) == ("*" in patterns)


def fits(pattern: str, name: str) -> bool:
    """What a pattern means, by trying every end of a star."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(fits(pattern[1:], name[end:]) for end in range(len(name) + 1))
    return name[:1] == pattern[0] and fits(pattern[1:], name[1:])


def test_patterns_mean_what_every_way_to_read_them_says() -> None:
    names = ["".join(letters) for count in range(6) for letters in itertools.product("a.", repeat=count)]
    for length in range(6):
        for pattern in map("".join, itertools.product("a.*", repeat=length)):
            matches = name_matcher([pattern]).fullmatch
            assert [bool(matches(name)) for name in names] == [fits(pattern, name) for name in names], pattern


def test_a_pattern_of_many_stars_is_read_once_however_long_the_name_is() -> None:
    """With one star more each, a group's name of some thousand characters took seconds, minutes and hours."""
    matches = name_matcher(["*a" * 40 + "*b", "*-shop-*-readers"]).fullmatch
    assert matches("a" * 4_000) is None
    assert matches("-shop-" * 8_000) is None
    assert matches("a" * 4_000 + "b")


@pytest.mark.parametrize(
    ("table", "version"),
    [
        ('{"dataVersion":{"counter":7,"stateVersion":2,"timestamp":1700000000000}}', (2, 1_700_000_000_000, 7)),
        ('{"dataVersion":{"counter":7}}', (0, 0, 7)),
        ('{"dataVersion":{"counter":"7","stateVersion":true,"timestamp":1.5}}', (0, 0, 0)),
        ('{"dataVersion":[7]}', (0, 0, 0)),
        ("{}", (0, 0, 0)),
    ],
)
def test_a_data_version_says_zero_for_what_is_no_number(table: str, version: tuple[int, int, int]) -> None:
    assert decode_data_version(table) == DataVersion(*version)


@pytest.mark.parametrize(
    ("topic", "has_units"),
    [
        ("orders", True),
        ("%DLQ%group", False),
        ("%RETRY%group", False),
        ("rmq_sys_wheel_timer", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
    ],
)
def test_records_of_copies_and_of_what_waits_have_no_units_in_light_queues(topic: str, has_units: bool) -> None:
    assert has_light_units(topic) is has_units


@pytest.mark.parametrize(
    ("name", "can_be"),
    [
        ("%LMQ%a", True),
        ("%LMQ%" + "x" * (LIGHT_QUEUE_NAME_BYTES_MAX - 5), True),
        ("%LMQ%" + "x" * (LIGHT_QUEUE_NAME_BYTES_MAX - 4), False),
        ("%LMQ%" + "\u4e2d" * 83, True),
        ("%LMQ%" + "\u4e2d" * 84, False),
        ("orders", False),
        ("%LMQ%a/b", False),
        ("%LMQ%a\0", False),
    ],
)
def test_a_light_queue_has_a_name_that_a_folder_can_have(name: str, can_be: bool) -> None:
    assert can_be_light_queue(name) is can_be


def test_the_light_queue_of_a_lite_topic_names_its_parent() -> None:
    assert lite_queue_name("orders", "chat-1") == "%LMQ%$orders$chat-1"  # `LiteUtil` of RocketMQ 5.5.0
    assert split_lite_queue("%LMQ%$orders$chat-1") == ("orders", "chat-1")
    assert (lite_parent_of("%LMQ%$orders$chat-1"), lite_topic_of("%LMQ%$orders$chat-1")) == ("orders", "chat-1")
    for name in ("%LMQ%a", "%LMQ%a$b", "%LMQ%$orders", "%LMQ%$$b", "%LMQ%$orders$", "%LMQ%$a$b$c", "orders"):
        assert split_lite_queue(name) is None


@pytest.mark.parametrize(("written", "minutes"), [("-1", 0), ("0", 0), ("15", 15), ("00015", 15), ("43200", 43_200)])
def test_an_expiration_of_lite_topics_is_minutes_or_never(written: str, minutes: int) -> None:
    assert lite_expiration_minutes_of(written) == minutes


@pytest.mark.parametrize("written", ["", "-2", "43201", "99999", "1" * 5_000, "+5", "x", "1.5", " 5", "\u0661"])
def test_an_expiration_that_is_no_number_of_minutes_is_refused_by_name(written: str) -> None:
    with pytest.raises(ValueError, match=r"lite\.topic\.expiration .*43200 minutes"):
        lite_expiration_minutes_of(written)


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("Orders", ""),
        ("team-a%Orders", "team-a"),
        ("team-a%Orders%x", "team-a"),
        ("%RETRY%team-a%group", "team-a"),
        ("%RETRY%team-a%group_team-a%Orders", "team-a"),
        ("%DLQ%team-a%group", "team-a"),
        ("%RETRY%group", ""),
        ("%LMQ%$Orders$lite", ""),
        ("%Orders", ""),
        ("", ""),
    ],
)
def test_a_topic_or_group_has_the_namespace_that_rocketmq_reads(name: str, namespace: str) -> None:
    assert namespace_of(name) == namespace
