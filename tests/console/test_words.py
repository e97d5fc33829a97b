"""Two languages, the same texts."""

import inspect
import re
from pathlib import Path

import pytest

import console
from commitlog_svc.log_status import LogStatus
from commitlog_svc.retention.disk_space import DiskLevel
from console.bodies.body import PROTOBUF_BYTES_MAX, Body, View, detect_encoding, inflated, show
from console.words import Words, language_of
from console.words_zh import CHINESE, PROBLEMS_BY_STATE, STATES
from consumer_svc.delivering.groups import _problems
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.following import follower_process
from services.held_span import HELD, OLDER_GONE

ROOT = Path(console.__file__).parent
TEXT = re.compile(r"""\b(?:t|words)\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def texts() -> set[str]:
    sources = [*ROOT.glob("templates/*.html"), *ROOT.rglob("*.py")]
    found = (match for path in sources for match in TEXT.finditer(path.read_text(encoding="utf-8")))
    return {(match[1] or match[2]).replace("\\'", "'") for match in found} | {HELD, OLDER_GONE}


def test_every_text_of_the_pages_has_its_chinese_and_no_chinese_is_left_over() -> None:
    assert len(texts()) > 200
    assert texts() ^ set(CHINESE) == set()


def test_translations_have_the_same_places_for_values() -> None:
    assert {
        english
        for english, chinese in CHINESE.items()
        if sorted(PLACEHOLDER.findall(english)) != sorted(PLACEHOLDER.findall(chinese))
    } == set()


@pytest.mark.parametrize(
    ("cookie", "accepted", "language"),
    [
        ("", "", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "de,en;q=0.5,zh;q=0.7", "zh"),
        ("", "de", "en"),
        ("en", "zh-CN", "en"),
        ("xx", "zh", "zh"),
        ("", "zh;q=x, de;q=.." + "a" * 9000, "en"),
    ],
)
def test_the_reader_decides_then_the_browser(cookie: str, accepted: str, language: str) -> None:
    assert language_of(cookie, accepted) == language


def test_values_go_into_both() -> None:
    assert Words("en")("{count} {count:key|keys}", count=3) == "3 keys"
    assert "3" in Words("zh")("{count} {count:key|keys}", count=3)


def test_one_of_what_is_counted_was_told_as_many() -> None:
    one = "{groups} {groups:group|groups}, {messages} {messages:message|messages} in flight, {clients} {clients:client|clients}"
    assert Words("en")(one, groups="1", messages="1,001", clients=0) == "1 group, 1,001 messages in flight, 0 clients"
    assert Words("zh")(one, groups="1", messages="1", clients=1) == "1 个消费者组，1 条消息在途，1 个客户端"
    assert Words("en")("{count} {count:key|keys}", count=1) == "1 key"


def test_each_number_of_an_english_text_has_its_form_for_one() -> None:
    """A word in the plural behind a number, where the number may be one."""
    after = re.compile(r"\{(?!shown\}|group\})\w+\} (?:more )?[a-z]{3,}s\b")
    always_many = {"Sorted are the first {count} topics by name: filter to sort fewer."}
    assert {text for text in texts() if after.search(text)} == always_many


def test_each_state_that_a_service_or_a_disk_tells_was_english_in_the_chinese_console() -> None:
    of_logs = re.findall(r"`([a-z-]+)`", inspect.getdoc(LogStatus.state) or "")
    of_followers = re.findall(r"^    ([a-z-]+)  ", follower_process.__doc__ or "", re.MULTILINE)
    told = {*of_logs, *of_followers, *(level.word for level in DiskLevel)} - {"state"}
    assert len(told) > 12
    assert told ^ set(STATES) == set()
    assert set(PROBLEMS_BY_STATE) <= told
    assert Words("zh").state("serving") == "服务中"
    assert Words("en").state("serving") == "serving"


@pytest.mark.parametrize(
    "text",
    [
        "no space left for the log: free some, appends go on by themselves",
        *_problems(
            [
                pb.Client(client_id="a"),
                pb.Client(client_id="b", subscriptions=[gateway_pb.TopicSubscription(topic="T")]),
            ]
        ),
        *(detect_encoding(content)[0] for content in (b"", b"{}", b"hello", b"\x00\xff\xfe\x01", b"\x1f\x8b\x08\x00")),
        inflated(b"no zlib", 0x1)[1],
        show(Body.of(b"x" * (PROTOBUF_BYTES_MAX + 1), 0), View.PROTOBUF).problem,
    ],
)
def test_texts_that_come_in_english_were_shown_so_in_the_chinese_console(text: str) -> None:
    assert Words("zh").from_english(text) != text
    assert Words("en").from_english(text) == text


def test_a_problem_that_is_not_known_is_explained_by_the_state_of_its_service() -> None:
    assert Words("zh").problem("retrying", "disk I/O error") == "上一次尝试失败，将自动重试（disk I/O error）"
    assert Words("en").problem("retrying", "disk I/O error") == "disk I/O error"
    assert Words("zh").from_english("never seen before") == "never seen before"
