"""The table of topics: sorted, with the last message, and loaded to its end; topics with more queues than a page has."""

import itertools
import re
from collections import Counter
from urllib.parse import quote, unquote

import pytest

from console.pages.topic import SHOWN_QUEUE_COUNT
from console.parts.formats import time_text
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.memory_shard import MemoryShard


def topics_on(page: str) -> list[str]:
    return [
        unquote(str(a["href"])).removeprefix("/topics/")
        for tag, a in Tags(page).tags
        if tag == "a" and a.get("class") == "stretched"
    ]


def own(topics: list[str]) -> list[str]:
    return [topic for topic in topics if not topic.startswith(("%", "RMQ_SYS", "SCHEDULE"))]


@pytest.mark.parametrize("sort", ["name", "messages", "last"])
def test_topics_are_sorted_as_the_records_say(browser: Browser, records, sort: str) -> None:
    counts = Counter(record.topic for record in records)
    last = {record.topic: record.store_time_millis for record in sorted(records, key=lambda r: r.store_time_millis)}
    wanted = {
        "name": lambda topic: topic,
        "messages": lambda topic: (-counts[topic], topic),
        "last": lambda topic: (-last.get(topic, 0), topic),
    }[sort]

    shown = own(topics_on(browser.get(f"/topics?sort={sort}&whole=1").text))

    assert set(own(list(counts))) <= set(shown)
    assert shown == sorted(shown, key=wanted)


def test_each_topic_shows_the_time_of_its_last_message(browser: Browser, records) -> None:
    answer = browser.get_json("/topics?whole=1").json
    page = browser.get("/topics?whole=1").text
    last: dict[str, int] = {}
    for record in records:
        last[record.topic] = max(last.get(record.topic, 0), record.store_time_millis)

    known = {line["topic"]: line["lastStoreMillis"] for line in answer["topics"]}
    assert {topic: str(millis) for topic, millis in last.items()} == {topic: known[topic] for topic in last}
    assert all(time_text(millis) in page for millis in last.values())


def test_the_orders_have_links_and_the_chosen_one_is_marked(browser: Browser) -> None:
    tags = Tags(browser.get("/topics?sort=messages").text).tags
    assert {a.get("aria-sort") for tag, a in tags if tag == "th"} >= {"descending"}
    assert any(tag == "a" and a.get("href") == "/topics?sort=last" for tag, a in tags)


def test_all_pages_of_a_sorted_table_hold_each_topic_once(fan_out) -> None:
    topics = {f"t{number:04d}": 1 + number % 7 for number in range(230)}
    app = console_over([MemoryShard([], topics=topics)], fan_out)
    browser, seen, url = Browser(app), [], "/topics?sort=queues"
    while url:
        page = browser.get(url).text
        seen += topics_on(page)
        url = next((a["href"] for tag, a in Tags(page).tags if tag == "a" and a.get("rel") == "next"), "")
    app.close()

    assert seen == sorted(topics, key=lambda topic: (-topics[topic], topic))


def test_what_there_was_no_time_for_has_a_place_that_is_filled_by_the_next_request(
    browser: Browser, records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.pages.topics.LAST_SECONDS", 0.0)
    page = browser.get("/topics").text
    (href,) = [a["data-load"] for _, a in Tags(page).tags if a.get("data-load")]

    rows = browser.get(str(href)).text

    assert 'class="skeleton"' in page
    assert 'class="skeleton"' not in rows
    assert time_text(max(record.store_time_millis for record in records)) in rows


@pytest.mark.parametrize("path", ["/topics", "/topics/b_order", "/groups"])
def test_a_part_that_takes_too_long_ends_with_a_word_and_no_moving_place(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for name in ("pages.topics.LATER_SECONDS", "pages.topic.LATER_SECONDS", "pages.groups.LATER_SECONDS"):
        monkeypatch.setattr(f"console.{name}", 0.0)
    for name in ("pages.topics.LAST_SECONDS", "pages.topic.RATES_SECONDS", "pages.groups.LAG_SECONDS"):
        monkeypatch.setattr(f"console.{name}", 0.0)
    page = browser.get(path).text
    (href,) = [a["data-load"] for _, a in Tags(page).tags if a.get("data-load")]

    part = browser.get(str(href)).text

    assert "took too long" in part
    assert "skeleton" not in part
    assert "data-load" not in part


def test_a_topic_with_many_queues_has_pages_that_show_each_queue_once(fan_out) -> None:
    count = 3 * SHOWN_QUEUE_COUNT - 5
    app = console_over([MemoryShard([], topics={"wide": count})], fan_out)
    browser, seen, url = Browser(app), [], "/topics/wide"
    for _ in itertools.count():
        page = browser.get(url).text
        seen += [int(number) for number in re.findall(r'href="/topics/wide/(\d+)\?', page)]
        url = next((str(a["href"]) for tag, a in Tags(page).tags if tag == "a" and a.get("rel") == "next"), "")
        if not url:
            break
    before = next(str(a["href"]) for tag, a in Tags(page).tags if tag == "a" and a.get("rel") == "prev")
    app.close()

    assert sorted(seen) == list(range(count))
    assert before == f"/topics/wide?from={SHOWN_QUEUE_COUNT}"
    assert f"of {count}." in page


def test_a_name_is_quoted_in_the_link_to_the_next_queues(fan_out) -> None:
    name = "%RETRY%a_b"
    app = console_over([MemoryShard([], topics={name: SHOWN_QUEUE_COUNT + 1})], fan_out)
    page = Browser(app).get(f"/topics/{quote(name, safe='')}").text
    app.close()

    assert f'href="/topics/{quote(name, safe="")}?from={SHOWN_QUEUE_COUNT}"' in page
