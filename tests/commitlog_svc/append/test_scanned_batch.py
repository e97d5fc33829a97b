"""The fast way of an append: what it takes it does as the plain way would, and all else it leaves to that."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog_svc.append import layout
from commitlog_svc.append.message_check import REFUSED_PROPERTIES
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage
from store.errors import DiskFullError, InvalidArgumentError
from store.files.mapped_files import MappedFile
from store.format.host import Host
from store.format.record import decode_record
from tests.commitlog_svc.append.test_message_check import BAD
from tests.commitlog_svc.batches import damaged
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import Twins, open_twins, request_of
from tests.support.fixture_stores import walk_frames
from tests.support.kernels import FORMS

SEED = 20_240_607
MUTATION_COUNTS = {"compiled": 20_000, "uncompiled": 1_000}
BOTH_FORMS = pytest.mark.parametrize("kernel_form", FORMS, indirect=True)
ORDINARY: list[dict[str, Any]] = [
    {},
    {"body": b"x"},
    {"body": b"x" * 70_000},
    {"keys": ["a"]},
    {"keys": ["a", "b", "a"], "tags": "T"},
    {"keys": [f"k{n}" for n in range(64)]},
    {"tags": "with space"},
    {"queue_id": 0},
    {"queue_id": 7},
    {"flag": -1},
    {"flag": (1 << 31) - 1},
    {"flag": -(1 << 31)},
    {"unique_key": "mine"},
    {"unique_key": "k" * 300},
    {"properties": {"b": "2", "a": "1", "ab": "3", "WAIT": "true", "B": " "}},
    {"properties": {f"name-{n}": f"value {n}" for n in range(64)}},
    {"properties": {"a": "b" * 32_000}},
    {"keys": ["k"], "tags": "t", "properties": {"p": "q"}, "unique_key": "u", "queue_id": 3, "flag": 9},
]
WIRE = b"UNIQ_KEY\x01wire\x02TAGS\x01T\x02__SHARDINGKEY\x01k\x02"
ORDINARY_ON_THE_WIRE: list[dict[str, Any]] = [
    {"wire_properties": b""},
    {"wire_properties": WIRE},
    {"wire_properties": WIRE[:-1]},
    {"wire_properties": WIRE + b"a\x01\x00"},
    {"wire_properties": WIRE + "KEYS\x01ключ\x02".encode() + b"\xff\x01\xff\x02", "queue_id": 2},
    {"wire_properties": b"\x02\x02no\x02\x01v\x02n\x01\x02UNIQ_KEY\x01\x02v\x01a\x01b\x02"},
    {
        "wire_properties": WIRE
        + b"UNIQ_KEY\x01the later one\x02RETRY_TOPIC\x01t\x02REAL_TOPIC\x01t\x02TIMER_OUT_MS\x015\x02"
    },
    {"wire_properties": b"".join(b"%d\x011\x02" % number for number in range(200)), "reconsume_times": 3},
    {"wire_properties": b"a\x01" + b"b" * 32_700 + b"\x02", "sys_flag": 0x303, "born_host": "1.2.3.4:5"},
    {"wire_properties": WIRE, "sys_flag": 0x102, "flag": -1, "born_host": "255.0.10.99:65535"},
    {"sys_flag": 0x201, "reconsume_times": (1 << 31) - 1, "born_host": "[2001:db8::8:800:200c:417a]:10911"},
    {"born_host": ""},
]
HOSTS = ["[::]:0", "[::1]:1", "[1::]:1", "[1::8]:1", "[1:2:3:4:5:6:7:8]:9", "[1:2:3:4:5:6:7::]:9", "[::2:3:4:5:6:7:8]:9",
         "[FE80::ABCD:0:0:1]:00080", "[1:2::7:8]:65535", "0.0.0.0:0"]  # fmt: skip
LEFT_ALONE: list[dict[str, Any]] = [
    {"topic": "another"},
    {"topic": "C_REPLY_TOPIC"},
    {"keys": ["ключ"]},
    {"tags": "标签"},
    {"tags": "\t"},
    {"keys": [f"k{n}" for n in range(65)]},
    {"properties": {"ü": "1"}},
    {"properties": {"a": "\x7f"}},
    {"properties": {f"name-{n}": "1" for n in range(65)}},
    {"properties": {"__SHARDINGKEY": "k"}},
    {"body": b"x" * (2 << 20)},
    {"born_host": "[::ffff:1.2.3.4]:5"},
    {"wire_properties": "UNIQ_KEY\x01ключ\x02".encode()},
    {"wire_properties": WIRE + b"DELAY\x010\x02"},
    {"wire_properties": WIRE + b"__CRC32#\x010123456789\x02"},
    {"wire_properties": WIRE + b"__REPUT_MOVED_FROM__\x011\x02"},
    {"wire_properties": WIRE + b"__REPUT_REQUEST__\x01x"},
]


@BOTH_FORMS
def test_what_an_earlier_request_left_in_a_buffer_does_not_send_messages_the_plain_way(
    tmp_path: Path, kernel_form: str
) -> None:
    with open_twins(tmp_path, properties_crc=False) as twins:
        twins.append(request_of(new_message()))
        for shift in range(len(b"__CRC32#")):
            assert twins.is_taken(request_of(new_message(body=b"x" * shift + b"__CRC32#" * 100)))
            assert twins.is_taken(request_of(new_message(body=b"0123456789" * 20)))


@BOTH_FORMS
@pytest.mark.parametrize("properties_crc", [True, False])
@pytest.mark.parametrize("store_host", ["10.1.2.3:10911", "[fd00::7]:10911"])
@pytest.mark.parametrize("born_host", [Host("10.0.0.9", 4711), Host("::1", 1)])
def test_ordinary_messages_are_taken_and_stored_as_the_plain_way_does(
    tmp_path: Path, kernel_form: str, properties_crc: bool, store_host: str, born_host: Host
) -> None:
    with open_twins(tmp_path, properties_crc=properties_crc, store_host=store_host) as twins:
        twins.append(request_of(new_message(), new_message(topic="t" * 127)), born_host)
        messages = [new_message(**fields) for fields in (*ORDINARY, *ORDINARY_ON_THE_WIRE)]
        messages += [new_message(born_host=host) for host in HOSTS]
        for time in (0, 1_700_000_000_999, 253_402_300_799_999):
            message = new_message()
            message.born_time.FromMilliseconds(time)
            messages.append(message)
        messages.append(new_message(topic="t" * 127))
        for message in messages:
            count = twins.fast_count
            twins.append(request_of(message), born_host)
            assert twins.fast_count == count + 1
        for flush in (0, 1, 2):
            answer = twins.append(request_of(*messages, flush=flush), born_host)
            assert len(messages) == len(answer.results)
        assert twins.fast_count == len(messages) + 3


@pytest.mark.parametrize("fields", LEFT_ALONE)
def test_what_is_not_ordinary_goes_the_plain_way(tmp_path: Path, fields: dict[str, Any]) -> None:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        assert not twins.is_taken(request_of(new_message(), new_message(**fields)))
        assert twins.is_taken(request_of(new_message()))


@pytest.mark.parametrize(("field", "what", "fields"), BAD, ids=[f"{field}: {what}" for field, what, _ in BAD])
def test_a_bad_message_is_refused_by_the_plain_way(
    tmp_path: Path, field: str, what: str, fields: dict[str, Any]
) -> None:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        _, _, metadata = twins.append(request_of(new_message(), new_message(**fields)))
        assert (field, "1") == (metadata["field"], metadata["index"])
        assert twins.is_taken(request_of(new_message()))  # in the turn and with the unique key that the plain way has


@pytest.mark.parametrize("name", sorted(REFUSED_PROPERTIES))
def test_no_property_of_the_store_gets_by(tmp_path: Path, name: str) -> None:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        refused = twins.append(request_of(new_message(properties={"a": "1", name: "1", "z": "1"})))
        assert "properties" == refused[2]["field"]


def test_requests_of_the_wrong_size_or_kind_are_refused(tmp_path: Path) -> None:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        for data in (
            b"",
            b"\xff" * 20,
            request_of(flush=2),
            request_of(*[new_message()] * 1025),
            request_of(*[new_message(b"x" * 900_000)] * 5),
            request_of(new_message(), flush=3),
            request_of(new_message(), deduplicate=True),
        ):
            assert isinstance(twins.append(data), tuple)
        assert twins.is_taken(request_of(*[new_message(unique_key="u")] * 1024))
        error, message, metadata = twins.append(b"\xff" * 20)
        assert (InvalidArgumentError, "request") == (error, metadata["field"])
        assert "AppendMessagesRequest" in message


@BOTH_FORMS
def test_text_that_resembles_a_damaged_crc_gets_a_crc_behind_it(tmp_path: Path, kernel_form: str) -> None:
    """In a log without `__CRC32#` such an end of a record was taken for damage, and the store stopped there."""
    with open_twins(tmp_path, properties_crc=False) as twins:
        twins.append(request_of(new_message()))
        for message in (
            new_message(properties={"__CRC32!": "0123456789"}),
            new_message(wire_properties=b"a\x01b__CRC32#\x010123456789\x02"),
            new_message(wire_properties=b"__CRD32#\x010123456789\x02"),
        ):
            assert not twins.is_taken(request_of(message))
        for log in (twins.fast, twins.plain):
            records = [
                decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(log._files.directory.parent)
            ]
            assert [True] * 3 == [record.is_guarded for record in records[1:]]


def test_requests_joined_on_the_wire_are_one(tmp_path: Path) -> None:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        parts = [request_of(new_message(b"%d" % n), flush=1) for n in range(5)]
        assert twins.is_taken(b"".join(parts))


@BOTH_FORMS
def test_a_batch_goes_on_in_the_next_file(tmp_path: Path, kernel_form: str) -> None:
    with open_twins(tmp_path, file_size_bytes=16_384) as twins:
        for number in range(200):
            twins.append(request_of(*[new_message(b"x" * (number % 97 + 1)) for _ in range(number % 13 + 1)]))
            twins.now_millis += number % 3
        assert twins.fast_count == 199
        assert twins.fast.status.file_count > 5


def test_topics_come_as_they_are_used_and_keep_their_turns(tmp_path: Path) -> None:
    with open_twins(tmp_path) as twins:
        topics = [f"topic-{n}" for n in range(70)]
        for topic in topics:
            twins.append(request_of(new_message(topic=topic)))
        assert twins.is_taken(request_of(*[new_message(topic=topic) for topic in topics[:64] * 3]))
        assert not twins.is_taken(request_of(*[new_message(topic=topic) for topic in topics]))
        assert twins.is_taken(request_of(*[new_message(topic=topic, queue_id=1) for topic in topics]))


@pytest.mark.parametrize("deduplicate", [False, True])
def test_messages_of_the_thousand_and_twenty_fifth_topic_took_the_plain_way(tmp_path: Path, deduplicate: bool) -> None:
    """One such message sent the whole request there: with 10,000 topics appends were four times slower."""
    with open_twins(tmp_path) as twins:
        topics = [f"topic-{n}" for n in range(1_300)]
        for begin in range(0, len(topics), 64):
            news = [new_message(topic=topic, unique_key=f"new {topic}") for topic in topics[begin : begin + 64]]
            twins.append(request_of(*news, flush=1, deduplicate=deduplicate))
        chance = random.Random(3)
        for number in range(20):
            chosen = chance.sample(topics, 60)
            messages = [new_message(topic=topic, keys=["k"], unique_key=f"{number} {topic}") for topic in chosen]
            assert twins.is_taken(request_of(*messages, flush=1, deduplicate=deduplicate))


def test_places_go_on_after_a_restart(tmp_path: Path) -> None:
    for _ in range(3):
        with open_twins(tmp_path) as twins:
            for _ in range(5):
                twins.append(request_of(*[new_message()] * 3, new_message(topic="other")))
            assert twins.fast_count == 4


_TEXT = st.text(st.characters(min_codepoint=0, max_codepoint=0x100), max_size=6)
_MESSAGES = st.builds(
    NewMessage,
    topic=st.sampled_from(["orders", "orders", "b", "c" * 127, "", "x y"]),
    body=st.binary(max_size=300),
    tags=_TEXT | st.just("TagA"),
    keys=st.lists(_TEXT | st.sampled_from(["k1", "k2"]), max_size=3),
    properties=st.dictionaries(_TEXT | st.sampled_from(["a", "WAIT", "KEYS", "__SHARDINGKEY"]), _TEXT, max_size=4),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    queue_id=st.none() | st.integers(-1, 9),
    unique_key=st.none() | _TEXT | st.just("ABC"),
)
_ON_THE_WIRE = st.builds(
    NewMessage,
    topic=st.just("orders"),
    body=st.just(b"x"),
    wire_properties=st.lists(
        st.sampled_from(
            [
                b"UNIQ_KEY\x01",
                b"\x01",
                b"\x02",
                b"a",
                b"\x00",
                b"__CRC32#\x01",
                b"0123456789\x02",
                b"DELAY\x01",
                b"WAIT\x01",
            ]
        ),
        max_size=8,
    ).map(b"".join),
    tags=st.just("") | st.just("t"),
    sys_flag=st.sampled_from([0, 0, 1, 3, 4, 0x10, 0x103, 0x403, -1]),
    reconsume_times=st.sampled_from([0, 0, 1, -1]),
    born_host=st.just("")
    | st.sampled_from(HOSTS)
    | st.text(st.sampled_from("0123456789abf:.[]"), max_size=14)
    | st.lists(st.sampled_from(["1", "ffff", "0", ":", "::", "1.2.3.4"]), max_size=12).map(
        lambda parts: f"[{':'.join(parts)}]:1"
    ),
)


@pytest.fixture
def twins(tmp_path: Path) -> Any:
    with open_twins(tmp_path, file_size_bytes=64 << 20) as twins:
        for topic in ("orders", "b", "c" * 127):
            twins.append(request_of(new_message(topic=topic)))
        yield twins


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(_MESSAGES | _ON_THE_WIRE, max_size=5), flush=st.integers(0, 4), deduplicate=st.booleans())
def test_any_request_has_one_outcome(twins: Twins, messages: list[NewMessage], flush: int, deduplicate: bool) -> None:
    twins.append(request_of(*messages, flush=flush, deduplicate=deduplicate))
    twins.compare_logs()


@BOTH_FORMS
def test_mutated_requests_have_one_outcome(kernel_form: str, twins: Twins) -> None:
    rng = random.Random(SEED)
    base = [new_message(**fields) for fields in (*ORDINARY, *ORDINARY_ON_THE_WIRE) if len(str(fields)) < 500]
    base += [new_message(born_host=host) for host in HOSTS]
    base[0].born_time.FromMilliseconds(1_600_000_000_777)
    taken = 0
    count = MUTATION_COUNTS[kernel_form]
    for number in range(count):
        data = damaged(request_of(*rng.sample(base, rng.randint(1, 3)), flush=rng.randint(0, 1)), rng)
        taken += twins.is_taken(data)
        if number % 1000 == 0:
            twins.compare_logs()
    assert count // 20 < taken < count


def test_the_field_numbers_are_those_of_the_protos() -> None:

    request = pb.AppendMessagesRequest.DESCRIPTOR
    stream = pb.AppendMessageStreamRequest.DESCRIPTOR
    response = pb.AppendMessagesResponse.DESCRIPTOR
    message = NewMessage.DESCRIPTOR
    result = response.fields_by_name["results"].message_type
    timestamp = message.fields_by_name["born_time"].message_type
    entry = message.fields_by_name["properties"].message_type

    def tags(descriptor: Any) -> dict[str, int]:
        lengths = {9, 11, 12}  # FieldDescriptor.TYPE_STRING, TYPE_MESSAGE, TYPE_BYTES
        return {f.name: f.number << 3 | (2 if f.type in lengths else 0) for f in descriptor.fields}

    expected_request = {
        "messages": layout.REQUEST_MESSAGES_TAG,
        "flush": layout.REQUEST_FLUSH_TAG,
        "deduplicate": layout.REQUEST_DEDUPLICATE_TAG,
    }
    plain = {"broker_name", "check_only"}  # requests that have them are not ordinary: test_servicer.py
    waiting = {
        "delivery_time",
        "delay_level",
    }  # nor are messages that wait, nor their receipts: test_waiting_appends.py
    of_plain_receipts = {"deduplicated", "recall_handle", "transaction_id"}

    def scanned(descriptor: Any) -> dict[str, int]:
        return {name: tag for name, tag in tags(descriptor).items() if name not in plain}

    assert plain <= tags(request).keys()
    assert expected_request == scanned(request) == scanned(stream)
    assert {
        "topic": layout.TOPIC_TAG,
        "queue_id": layout.QUEUE_ID_TAG,
        "body": layout.BODY_TAG,
        "tags": layout.TAGS_TAG,
        "keys": layout.KEYS_TAG,
        "properties": layout.PROPERTIES_TAG,
        "flag": layout.FLAG_TAG,
        "unique_key": layout.UNIQUE_KEY_TAG,
        "born_time": layout.BORN_TIME_TAG,
        "reconsume_times": layout.RECONSUME_TIMES_TAG,
        "sys_flag": layout.SYS_FLAG_TAG,
        "born_host": layout.BORN_HOST_TAG,
        "wire_properties": layout.WIRE_PROPERTIES_TAG,
    } == {name: tag for name, tag in tags(message).items() if name not in waiting}
    assert {"key": layout.ENTRY_NAME_TAG, "value": layout.ENTRY_VALUE_TAG} == tags(entry)
    assert {"seconds": layout.SECONDS_TAG, "nanos": layout.NANOS_TAG} == tags(timestamp)
    assert layout.RESPONSE_RESULTS_TAG == tags(response)["results"]
    assert {
        "offset_msg_id": layout.RESULT_OFFSET_MSG_ID_TAG,
        "unique_key": layout.RESULT_UNIQUE_KEY_TAG,
        "queue_id": layout.RESULT_QUEUE_ID_TAG,
        "queue_offset": layout.RESULT_QUEUE_OFFSET_TAG,
        "commit_log_offset": layout.RESULT_COMMIT_LOG_OFFSET_TAG,
        "store_time": layout.RESULT_STORE_TIME_TAG,
        "broker_name": layout.RESULT_BROKER_NAME_TAG,
        "freshness_token": layout.RESULT_FRESHNESS_TOKEN_TAG,
    } == {name: tag for name, tag in tags(result).items() if name not in of_plain_receipts}


def test_a_full_disk_takes_back_what_was_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_twins(tmp_path) as twins:
        for _ in range(3):
            twins.append(request_of(*[new_message(queue_id=n % 3) for n in range(7)]))
        write = MappedFile.write_parts

        def refuse(file: MappedFile, *arguments: Any) -> None:
            raise DiskFullError("no space left", file=file.path.name)

        monkeypatch.setattr(MappedFile, "write_parts", refuse)
        assert DiskFullError is twins.append(request_of(*[new_message(queue_id=n % 3) for n in range(5)]))[0]
        monkeypatch.setattr(MappedFile, "write_parts", write)
        assert twins.is_taken(request_of(*[new_message(queue_id=n % 3) for n in range(7)]))
