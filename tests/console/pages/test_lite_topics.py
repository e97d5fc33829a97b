"""The lite topics of a topic: by name, page by page, with a filter, and of one group."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from console.parts.formats import time_text
from gateway.ports.time_window import set_millis
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import LiteTopicGroup
from reput.message.v1 import message_pb2
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.groups.memory_groups import MemoryGroups, group_settings
from tests.gateway.memory_shard import MemoryShard

LAST_MILLIS = 1_700_000_000_000


def lite_topics(count: int, *groups: str) -> list[pb.LiteTopic]:
    """So many, each with two messages, of which groups have one in flight and one to consume."""
    rows = []
    for number in range(count):
        row = pb.LiteTopic(lite_topic=f"user-{number:04d}", min_offset=3, max_offset=5)
        set_millis(row.last_store_time, LAST_MILLIS)
        row.groups.extend(LiteTopicGroup(consumer_group=name, lag_count=2, in_flight_count=1) for name in groups)
        rows.append(row)
    return rows


class LiteShard(MemoryShard):
    """A shard with lite topics of topics."""

    def __init__(self, rows: dict[str, list[pb.LiteTopic]]) -> None:
        super().__init__([], topics=dict.fromkeys(rows, 4))
        self.rows = rows
        self.kinds = {"chats": message_pb2.MESSAGE_TYPE_LITE}

    def shard(self, broker_name: str = "broker-a") -> Any:
        groups = MemoryGroups()
        groups.lite_topics = self.rows
        groups.groups = {"readers": group_settings("readers")}
        groups.lite_sums = [pb.LiteSummary(topic="chats", lite_topic_count=250, lag_count=500)]
        return groups.in_shard(super().shard(broker_name))


@pytest.fixture
def lite_browser(fan_out: Any) -> Iterator[Browser]:
    rows = {
        "chats": lite_topics(250, "readers", "others"),
        "%_-" * 42: lite_topics(250, *("g" * 200,) * 5),
        "empty": [],
    }
    app = console_over([LiteShard(rows)], fan_out)
    yield Browser(app)
    app.close()


def names_on(page: str) -> list[str]:
    return re.findall(r">(user-\d{4})<", page)


@pytest.mark.parametrize("topic", ["chats", "%25_-" * 42])
def test_pages_hold_each_lite_topic_once_and_stay_small(lite_browser: Browser, topic: str) -> None:
    seen: list[str] = []
    url = f"/topics/{topic}/lite-topics"
    while url:
        page = lite_browser.get(url)
        assert page.status == 200
        assert len(page.body) < 100 * 1024
        seen += names_on(page.text)
        url = next((str(a["href"]) for tag, a in Tags(page.text).tags if tag == "a" and a.get("rel") == "next"), "")
    assert seen == [f"user-{number:04d}" for number in range(250)]


def test_a_row_shows_messages_lag_and_groups_and_leads_to_the_messages(lite_browser: Browser) -> None:
    page = lite_browser.get("/topics/chats/lite-topics?q=0007")
    assert names_on(page.text) == ["user-0007"]
    cells = dict(re.findall(r'data-name="([^"]+)">(.*?)</td>', page.text))
    assert (cells["Messages"], cells["Lag"], cells["In flight"]) == ("2", "4", "2")
    assert time_text(LAST_MILLIS) in cells["Last message"]
    assert re.findall(r">(\w+)</bdi>", cells["Groups"]) == ["readers", "others"]
    assert 'href="/topics/%25LMQ%25%24chats%24user-0007/0?broker=broker-a&amp;offset=3"' in page.text


def test_of_a_group_only_its_lite_topics_are_shown_and_a_link_leads_to_all(lite_browser: Browser) -> None:
    page = lite_browser.get("/topics/chats/lite-topics?group=readers&q=USER-001")
    assert len(names_on(page.text)) == 10
    assert "Those in which the group readers has" in page.text
    assert '<input type="hidden" name="group" value="readers">' in page.text
    assert lite_browser.get("/topics/chats/lite-topics?group=nobody").text.count("user-") == 0


def test_topics_of_the_type_lite_and_their_groups_lead_to_the_page(lite_browser: Browser) -> None:
    assert 'href="/topics/chats/lite-topics"' in lite_browser.get("/topics/chats").text
    assert "lite-topics" not in lite_browser.get("/topics/empty").text
    assert 'href="/topics/chats/lite-topics?group=readers"' in lite_browser.get("/groups/readers").text


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("/topics/empty/lite-topics", "There is no lite topic yet."),
        ("/topics/chats/lite-topics?q=nowhere", "No lite topic matches."),
        ("/topics/chats/lite-topics?group=nobody", "No lite topic matches."),
    ],
)
def test_a_page_without_a_lite_topic_says_why(lite_browser: Browser, url: str, text: str) -> None:
    assert text in lite_browser.get(url).text


def test_the_page_is_in_both_languages(lite_browser: Browser) -> None:
    page = lite_browser.get("/topics/chats/lite-topics?group=readers", cookie="reput_language=zh").text
    assert "轻量主题" in page
    assert "仅显示消费者组 readers" in page
