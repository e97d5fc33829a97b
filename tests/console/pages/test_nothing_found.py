"""Nothing found is no success and no failure: the page says what the store holds, and what to try next."""

import pytest

from console.parts.formats import time_text
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.memory_shard import MemoryShard


class DatedShard(MemoryShard):
    """A shard whose log says how new its newest record is."""

    def statuses(self, deadline):
        newest = max(record.store_time_millis for record in self.records)
        first = min(record.commit_log_offset for record in self.records)
        rows = super().statuses(deadline)
        for row in rows:
            row.status.newest_store_time.FromMilliseconds(newest)
            row.status.log_first_offset = first
        return rows


@pytest.fixture
def dated(records, fan_out):
    app = console_over([DatedShard(records)], fan_out)
    yield Browser(app)
    app.close()


@pytest.mark.parametrize("path", ["/?q=nowhere", "/?mode=key&topic=b_order&key=nowhere"])
def test_nothing_found_says_which_times_the_store_holds(dated, records, path):
    times = [record.store_time_millis for record in records]
    page = Tags(dated.get(path).text)

    assert "There is no such message." in page.text
    assert f"holds messages from {time_text(min(times))} to {time_text(max(times))}" in page.text
    assert "Older messages are gone." not in page.text
    assert any(href and "mode=search" in href for href in (given.get("href") for _, given in page.tags))


def test_nothing_found_leads_to_the_other_case_and_to_keys_that_begin_with_it(dated, records):
    record = next(record for record in records if record.keys and record.topic == "b_order")
    key = record.keys[0]
    begin = key[:-1] if key[:-1].lower() != key[:-1].upper() else "b"
    page = Tags(dated.get(f"/?mode=key&topic=b_order&key={begin}").text)
    hrefs = [str(given["href"]) for tag, given in page.tags if tag == "a" and given.get("href")]

    other = begin.upper() if begin != begin.upper() else begin.lower()
    assert any(f"key={other}" in href and "mode=key" in href for href in hrefs)
    (prefix,) = [href for href in hrefs if "startsWith" in href]
    found = dated.get_json(prefix).json["answer"]
    wanted = {each.queue_offset for each in records if any(k.startswith(begin) for k in each.keys)}
    assert found.get("messages") or found.get("nextPageToken")
    assert {int(each.get("queueOffset", 0)) for each in found.get("messages", [])} <= wanted


def test_nothing_found_is_neutral_and_something_found_is_not(dated, records):
    key = next(record.keys[0] for record in records if record.keys)
    banners = {}
    for text in (key, "nowhere"):
        tags = Tags(dated.get(f"/?q={text}").text).tags
        (banners[text],) = [
            given["class"] for name, given in tags if name == "section" and "banner" in (given.get("class") or "")
        ]

    assert banners == {key: "banner good", "nowhere": "banner info"}


def test_a_removed_beginning_is_said(records, fan_out):
    kept = records[len(records) // 2 :]
    app = console_over([DatedShard(kept)], fan_out)
    text = Tags(Browser(app).get("/?q=nowhere").text).text
    app.close()

    assert "Older messages are gone." in text
    assert time_text(min(record.store_time_millis for record in kept)) in text


def test_a_store_that_does_not_tell_its_times_is_no_failure(browser):
    text = Tags(browser.get("/?q=nowhere").text).text

    assert "There is no such message." in text
    assert "The store holds" not in text
