"""Results bit by bit: what a page says before all is searched, where it goes on, and how large sets are paged."""

import random
import re
from collections import Counter
from dataclasses import replace
from urllib.parse import quote

import pytest

from console.pages import find as find_page
from console.pages.topics import PAGE_SIZE
from gateway.queries import find_message as finding
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format.message_id import encode_offset_msg_id
from store.format.properties import encode_properties
from store.format.record import Record
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.memory_shard import MemoryShard, candidates

PAGE_BYTES_MAX = 100 * 1024
KEY = "order-of-everybody"


def id_of(record) -> str:
    return encode_offset_msg_id(record.store_host, record.commit_log_offset)


def next_of(html: str) -> str:
    links = [a["href"] for tag, a in Tags(html).tags if tag == "a" and a.get("rel") == "next"]
    return str(links[0]) if links else ""


def rows_of(html: str) -> list[str]:
    return [str(a["title"]) for tag, a in Tags(html).tags if tag == "a" and a.get("class") == "stretched"]


@pytest.fixture
def topic(records) -> str:
    return Counter(record.topic for record in records).most_common(1)[0][0]


@pytest.fixture
def hurried(monkeypatch) -> None:
    """A search that stops after every batch."""
    monkeypatch.setattr(find_page, "SEARCH_MILLIS_MAX", 1)
    monkeypatch.setattr("gateway.search.scan.READ_COUNT", 16)
    monkeypatch.setattr("gateway.search.question.Meter.time_is_over", property(lambda _: True))


def steps_of(browser: Browser, url: str) -> list[tuple[str, dict]]:
    """Every page of a question: its HTML and its JSON."""
    steps = []
    while url:
        html, answer = browser.get(url).text, browser.get_json(url).json
        # Each has its own scan, stopped by time: where it goes on is compared by what it holds.
        assert bool(next_of(html)) == ("next" in answer)
        steps.append((html, answer))
        url = answer.get("next", "")
    return steps


def test_nothing_is_said_not_to_be_there_before_all_is_searched(browser: Browser, topic: str, hurried) -> None:
    steps = steps_of(browser, f"/?mode=search&topic={topic}&body=nowhere-to-be-found")

    assert len(steps) > 5
    for html, answer in steps[:-1]:
        text = Tags(html).text
        assert "No match so far: the search is not complete." in text
        assert "There is no such message" not in text
        assert "every match is here" not in text
        assert "Search on" in text
        assert answer["answer"]["completeness"] == "COMPLETENESS_TRUNCATED"
    assert "No further match: everything was searched." in Tags(steps[-1][0]).text


def test_progress_rises_to_the_whole_and_the_ranges_are_each_position_once(
    browser: Browser, records, topic: str, hurried
) -> None:
    answers = [answer["answer"] for _, answer in steps_of(browser, f"/?mode=search&topic={topic}&tag=nobody-has-it")]
    queues = Counter(record.queue_id for record in records if record.topic == topic)

    total = sum(queues.values())
    assert {int(answer["totalRecordCount"]) for answer in answers} == {total}
    passed = [int(answer["passedRecordCount"]) for answer in answers]
    assert passed == sorted(passed)
    assert passed[-1] == total
    assert passed[0] < total
    seen = Counter(
        (scanned.get("queueId", 0), offset)
        for answer in answers
        for scanned in answer.get("scannedRanges", [])
        for offset in range(int(scanned.get("beginOffset", 0)), int(scanned["endOffset"]))
    )
    assert sum(seen.values()) == len(seen) == total


def test_a_window_counts_what_it_leaves_out_as_passed(browser: Browser, records, topic: str, hurried) -> None:
    times = sorted(record.store_time_millis for record in records if record.topic == topic)
    middle = times[len(times) // 2]
    steps = steps_of(browser, f"/?mode=search&topic={topic}&begin={middle}&body=nowhere-to-be-found")

    assert int(steps[-1][1]["answer"]["passedRecordCount"]) == len(times)
    assert "or are outside the time window" in Tags(steps[0][0]).text


def test_steps_of_the_script_fill_one_page_and_no_more(browser: Browser, records, topic: str, hurried) -> None:
    """What console.js does: the result alone, with as many rows as there is room for."""
    url = f"/?mode=search&topic={topic}&size=25&order=oldest"
    html = browser.get(url).text
    shown = rows_of(html)
    while len(shown) < 25:
        link = next_of(html)
        assert "data-goes-on" in html
        html = browser.get(f"{link}&part=result&have={len(shown)}").text
        assert "<form" not in html
        assert not {"part", "have"} & set(re.findall(r"[?&;](\w+)=", next_of(html)))
        assert f"{len(shown) + len(rows_of(html))} shown" in Tags(html).text
        shown += rows_of(html)

    assert "data-goes-on" not in html
    assert "Next page" in Tags(html).text
    ordered = sorted(
        (record for record in records if record.topic == topic),
        key=lambda record: (record.queue_id, record.queue_offset),
    )
    assert shown == [id_of(record) for record in ordered[:25]]
    assert browser.get(f"{link}&part=result&have=25").status == 400


def test_find_has_pages_of_its_own(browser: Browser, records, monkeypatch) -> None:
    # On a busy machine a page and its JSON would stop at different places.
    monkeypatch.setattr(find_page, "FIND_MILLIS_MAX", 5_000)
    key, count = Counter(key for record in records for key in record.keys).most_common(1)[0]
    assert count > 25
    steps = steps_of(browser, f"/?q={quote(key)}")

    shown = [row for html, _ in steps for row in rows_of(html)]
    assert sorted(shown) == sorted(id_of(record) for record in records if key in record.keys)
    assert "this is the end: every match is here or on a page before" in Tags(steps[-1][0]).text
    assert [len(rows_of(html)) for html, _ in steps[:-1]] == [25] * (len(steps) - 1)


@pytest.mark.parametrize("form", ["{topic}+{key}", "{topic}%23{key}"])
def test_a_key_with_its_topic_goes_on_as_well(browser: Browser, records, form: str) -> None:
    by_topic = Counter((record.topic, key) for record in records for key in record.keys)
    (topic, key), count = by_topic.most_common(1)[0]
    assert count > 25
    steps = steps_of(browser, "/?q=" + form.format(topic=quote(topic, safe=""), key=quote(key)))

    assert sum(len(rows_of(html)) for html, _ in steps) == count


def test_the_next_page_of_the_last_days_was_refused(browser: Browser, records, topic: str) -> None:
    """Each request had a window of its own: the token was of another."""
    app = browser._app
    newest = max(record.store_time_millis for record in records) / 1000
    moments = iter(newest + number for number in range(1, 1_000))
    app._source.clock = lambda: next(moments)
    (_, key), _ = Counter((record.topic, key) for record in records for key in record.keys).most_common(1)[0]
    first = browser.get(f"/?q={quote(key)}&last=30d")

    assert browser.get(next_of(first.text)).status == 200
    assert rows_of(browser.get(next_of(first.text)).text)


class HugeShard(MemoryShard):
    """A shard with one message `many` times, each in its own place of the log."""

    many = 4_000

    def __post_init__(self) -> None:
        super().__post_init__()
        (self._only,) = self.records

    def record(self, number: int) -> Record:
        return replace(self._only, commit_log_offset=number * 1_000, queue_offset=number)

    def search(self, topic, key, window, *, below_offset, count_max, deadline, explain=False):
        assert (topic, key) == ("Huge", KEY)
        end = self.many if below_offset is None else min(self.many, -(-below_offset // 1_000))
        hits = tuple(number * 1_000 for number in range(end - 1, max(-1, end - 1 - count_max), -1))
        return candidates(hits, end > count_max, self.progress_now)

    def get_many(self, commit_log_offsets, body_bytes_max, deadline):
        one = super().get_many([0], body_bytes_max, deadline)[0]
        found = []
        for offset in commit_log_offsets:
            payload = message_pb2.StoredMessage()
            payload.CopyFrom(one)
            payload.commit_log_offset, payload.queue_offset = offset, offset // 1_000
            payload.offset_msg_id = encode_offset_msg_id(self._only.store_host, offset)
            found.append(payload)
        return found


@pytest.fixture
def huge(records) -> HugeShard:
    plain = next(record for record in records if record.topic == "b_log" and record.keys)
    properties = encode_properties({**plain.properties, "KEYS": KEY})
    body = random.Random(1).randbytes(40).hex().encode()
    one = replace(plain, topic="Huge", queue_offset=0, commit_log_offset=0, properties_bytes=properties, body=body)
    return HugeShard([one])


@pytest.mark.parametrize(("path", "method"), [(f"/?mode=key&topic=Huge&key={KEY}", "key"), (f"/?q={KEY}", "find")])
@pytest.mark.parametrize("many", [4_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_very_many_matches_are_paged_to_the_end_each_page_small(huge, fan_out, path, method, many: int) -> None:
    huge.many = many
    app = console_over([huge], fan_out)
    browser, servicer = Browser(app), app._source.gateway
    if method == "key":
        ask, request = servicer.QueryMessageByKey, pb.QueryMessageByKeyRequest(topic="Huge", key=KEY, page_size=1000)
    else:
        ask, request = servicer.FindMessage, pb.FindMessageRequest(text=KEY, page_size=1000)
    seen: list[int] = []
    while True:
        answer = ask(request, Deadlined())
        messages = answer.messages if method == "key" else [match.message for match in answer.matches]
        seen += [message.commit_log_offset for message in messages]
        request.page_token = answer.next_page_token
        if not request.page_token:
            break
        if len(seen) in (1_000, many // 2, many - 1_000):  # the console's own pages begin anywhere
            page = browser.get(f"{path}&size=50&page={request.page_token}")
            assert len(page.body) < PAGE_BYTES_MAX
            assert rows_of(page.text) == [id_of(huge.record(many - len(seen) - 1 - number)) for number in range(50)]
            assert next_of(page.text)
    app.close()

    assert seen == [number * 1_000 for number in reversed(range(many))]


class Deadlined:
    """A call with time."""

    def time_remaining(self) -> float:
        return 60.0


def many_topics(count: int = 5_000) -> dict[str, int]:
    return {f"team-{number % 97:02d}.events.{number:05d}": 4 for number in range(count)}


def test_five_thousand_topics_are_paged_each_page_small(fan_out) -> None:
    topics = many_topics()
    app = console_over([MemoryShard([], topics=topics)], fan_out)
    browser, names, url = Browser(app), [], "/topics"
    while url:
        page = browser.get(url)
        assert len(page.body) < PAGE_BYTES_MAX
        found = Tags(page.text)
        names += [text for text in found.texts if text.startswith("team-")]
        url = next_of(page.text)
    app.close()

    assert names == sorted(topics)


def test_a_filter_looks_through_all_topics_and_has_pages(fan_out) -> None:
    topics = many_topics()
    app = console_over([MemoryShard([], topics=topics)], fan_out)
    browser = Browser(app)
    last = max(topics)

    assert last in browser.get(f"/topics?q={last[-14:].upper()}").text
    names, url = [], "/topics?q=TEAM-1"
    while url:
        answer = browser.get_json(url).json["answer"]
        names += [row["topic"] for row in answer["topics"]]
        url = next_of(browser.get(url).text)
    app.close()

    assert names == sorted(name for name in topics if name.startswith("team-1"))
    assert len(names) > PAGE_SIZE


@pytest.mark.parametrize("letter", ["x", "主", "&"])
def test_a_page_of_the_longest_names_is_as_small(fan_out, letter) -> None:
    prefix = letter * ((255 - 8) // len(letter.encode()))
    topics = {f"{prefix}{number:04d}": 8 for number in range(250)}
    app = console_over([MemoryShard([], topics=topics) for _ in range(6)], fan_out)
    browser, hrefs, url = Browser(app), [], "/topics"
    while url:
        page = browser.get(url)
        assert len(page.body) < PAGE_BYTES_MAX
        hrefs += [a["href"] for tag, a in Tags(page.text).tags if tag == "a" and a.get("class") == "stretched"]
        url = next_of(page.text)
    app.close()

    assert hrefs == [f"/topics/{quote(name, safe='')}" for name in sorted(topics)]


def test_no_form_carries_the_topics(fan_out) -> None:
    app = console_over([MemoryShard([], topics=many_topics())], fan_out)
    for path in ("/", "/?mode=key", "/?mode=search", "/?mode=offset", "/?mode=unique"):
        assert "team-" not in Browser(app).get(path).text
    app.close()


def test_find_in_thousands_of_topics_goes_on_where_its_time_was_over(fan_out, records, monkeypatch) -> None:
    monkeypatch.setattr(finding, "TOPIC_COUNT_MAX", 700)
    last = replace(next(record for record in records if record.keys), topic="zzz-last")
    app = console_over([MemoryShard([last], topics=many_topics(3_000))], fan_out)
    steps = steps_of(Browser(app), f"/?q={quote(last.keys[0])}")
    app.close()

    assert len(steps) > 1
    assert [row for html, _ in steps for row in rows_of(html)] == [id_of(last)]
    assert "There is no such message" not in "".join(Tags(html).text for html, _ in steps)
