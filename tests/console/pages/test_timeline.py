"""The timeline of a message: from its birth over its retries to the groups now, each event from a record of the store."""

import re
from dataclasses import replace

import pytest

from console.parts.formats import time_text
from store.format.message_id import encode_offset_msg_id
from store.format.properties import encode_properties
from tests.console.asking import Browser, Tags, console_over
from tests.console.conftest import GroupedShard
from tests.gateway.memory_shard import MemoryShard

EVENT = re.compile(r'<li class="event[^"]*">(.*?)</li>', re.DOTALL)


def path_of(record) -> str:
    return f"/messages/{encode_offset_msg_id(record.store_host, record.commit_log_offset)}?broker=broker-a"


def events_on(page: str) -> list[str]:
    return [" ".join(Tags(event).text.split()) for event in EVENT.findall(page)]


@pytest.fixture
def made_of(records) -> list:
    """A message and what the broker made of it, oldest first: a retry, the wait before it, a dead letter."""
    dead = next(record for record in records if record.topic.startswith("%DLQ%"))
    origin_id = dead.properties["ORIGIN_MESSAGE_ID"]
    origin = next(
        record for record in records if encode_offset_msg_id(record.store_host, record.commit_log_offset) == origin_id
    )
    own = [
        record
        for record in records
        if record is origin or (record.properties.get("ORIGIN_MESSAGE_ID") == origin_id and record.unique_key)
    ]
    return sorted(own, key=lambda record: record.commit_log_offset)


def test_the_timeline_has_each_record_that_the_broker_made_of_the_message_in_order(browser: Browser, made_of) -> None:
    origin = made_of[0]
    events = events_on(browser.get(path_of(origin)).text)

    assert events[0].startswith(time_text(origin.born_time_millis))
    assert "Made by its producer" in events[0]
    assert "Stored in its topic b_log this page" in events[1]
    assert "Given up: stored as a dead letter %DLQ%b_cg" in events[-2]
    assert [event[: len("2026-11-21 10:29:12.000")] for event in events[1:-1]] == [
        time_text(record.store_time_millis) for record in made_of
    ]
    assert events[-1].startswith("Now")


def test_json_has_the_same_timeline_as_the_page(browser: Browser, made_of) -> None:
    page, answer = browser.get(path_of(made_of[0])), browser.get_json(path_of(made_of[0]))

    assert [event["kind"] for event in answer.json["timeline"]][:2] == ["born", "stored"]
    assert answer.json["timeline"][-1]["kind"] == "dead-letter"
    assert len(answer.json["timeline"]) == len(events_on(page.text)) - 1


def test_the_page_of_a_dead_letter_shows_the_life_of_the_message_it_was_made_of(browser: Browser, made_of) -> None:
    origin, dead = made_of[0], made_of[-1]
    kinds = [event["kind"] for event in browser.get_json(path_of(dead)).json["timeline"]]

    assert (kinds[0], kinds[1], kinds[-1]) == ("born", "stored", "dead-letter")
    events = events_on(browser.get(path_of(dead)).text)
    assert "this page" in events[-2]
    assert time_text(origin.store_time_millis) in events[1]


def test_now_says_how_the_message_stands_with_each_group(browser: Browser, made_of) -> None:
    now = events_on(browser.get(path_of(made_of[0])).text)[-1]

    for text in ("g-CONSUMED Consumed", "g-DEAD_LETTER Dead letter", "g-NOT_CONSUMED Not yet delivered"):
        assert text in now
    assert f"g-RETRYING Retrying · again at {time_text(1_700_000_000_000)}" in now


def test_a_message_that_was_sent_twice_is_stored_once_more(records, fan_out) -> None:
    first = next(record for record in records if record.unique_key and record.topic == "b_order")
    again = replace(
        first,
        commit_log_offset=first.commit_log_offset + 100_000,
        queue_offset=first.queue_offset + 7,
        store_time_millis=first.store_time_millis + 5,
    )
    app = console_over([MemoryShard([first, again])], fan_out)
    kinds = [event["kind"] for event in Browser(app).get_json(path_of(first)).json["timeline"]]
    app.close()

    assert kinds == ["born", "stored", "again"]


def test_groups_that_nobody_knows_are_said_to_be_not_known(records, fan_out) -> None:
    record = next(record for record in records if record.topic == "b_order")
    app = console_over([MemoryShard([record])], fan_out)
    now = events_on(Browser(app).get(path_of(record)).text)[-1]
    app.close()

    assert "It is not known how it stands with consumer groups." in now


TOLD = (
    "Pub|{at}|R|senders <b>|T|{key}|t|k|10.0.0.1:10911|7|12|0|7F00|true",
    "EndTransaction|{at}|R|senders|T|{key}|t|k|10.0.0.1:10911|2|x|ROLLBACK_MESSAGE|true",
    "SubBefore|{at}|R|readers|r1|{key}|2|k",
    "SubAfter|r1|{key}|30|false|k|2|{at}|readers",
    "SubBefore|{at}|R|readers|r2|{key}|0|k",
    "Recall|{at}|R|senders|T|{key}|true",
)


def traced(record, *entries: str, keys: str = ""):
    """A trace message behind a record, told at its store time."""
    told = "".join(
        entry.format(at=record.store_time_millis, key=record.unique_key).replace("|", "\x01") + "\x02"
        for entry in entries
    )
    return replace(
        record,
        topic="RMQ_SYS_TRACE_TOPIC",
        body=told.encode(),
        sys_flag=0,
        commit_log_offset=record.commit_log_offset + record.store_size_bytes,
        properties_bytes=encode_properties({"KEYS": keys or record.unique_key, "UNIQ_KEY": "0" * 32}),
    )


@pytest.fixture
def asked(records, fan_out):
    """The page of a message with such a trace message, and its JSON."""
    record = next(record for record in records if record.unique_key and record.topic == "b_order")
    apps = []

    def ask(*entries: str, topic: str = "RMQ_SYS_TRACE_TOPIC", query: str = ""):
        told = [replace(traced(record, *entries), topic=topic)] if entries else []
        app = console_over([GroupedShard([record, *told])], fan_out)
        apps.append(app)
        browser = Browser(app)
        path = path_of(record) + query
        return browser.get(path).text, browser.get_json(path).json

    yield ask
    for app in apps:
        app.close()


def test_the_timeline_has_what_clients_told_between_the_records(asked) -> None:
    page, answer = asked(*TOLD)
    told = [event for event in events_on(page) if "told by the client" in event]
    told = [event.split(" ", 2)[2].removesuffix(" told by the client") for event in told]
    host = answer["message"]["bornHost"]
    assert told == [
        f"Sent by a client of senders <b> {host} successful · 12 ms",
        f"Transaction ended by senders {host} rollback after a check",
        f"Handled by readers {host} the handler raised an exception · 30 ms delivery 3",
        f"Handled by readers {host} its end was not told",
        f"Recalled by senders {host} successful",
    ]
    assert [event["kind"] for event in answer["timeline"]] == [
        *("born", "stored", "sent", "verdict", "handled", "handled", "recalled")
    ]
    assert len(answer["tracks"]["traces"]["events"]) == 5
    assert "No trace of it" not in page


def test_no_trace_is_told_as_such_and_not_as_not_consumed(asked) -> None:
    page, _ = asked()
    assert (
        "No trace of it was sent to RMQ_SYS_TRACE_TOPIC, or it is no longer kept: that says nothing of consumers."
        in page
    )


def test_traces_of_a_topic_of_the_clients_own_are_shown_when_it_is_named(asked) -> None:
    page, answer = asked(*TOLD, topic="OwnTraces", query="&trace_topic=OwnTraces")
    assert len([event for event in events_on(page) if "told by the client" in event]) == 5
    assert answer["tracks"]["traces"]["topic"] == "OwnTraces"
    assert 'name="trace_topic" value="OwnTraces"' in page
    assert "&amp;trace_topic=OwnTraces&amp;view=hex" in page, "the other views of the body keep it"
    page, _ = asked(*TOLD, topic="OwnTraces")
    assert "No trace of it was sent to RMQ_SYS_TRACE_TOPIC" in page
    page, _ = asked(*TOLD, query="&trace_topic=" + "x" * 300)
    assert "It is not known how it stands with consumer groups." in page


def test_damaged_traces_are_counted_on_the_page(asked) -> None:
    page, _ = asked(TOLD[0], "Pub|soon|R|g|T|{key}")
    assert "1 entry of traces is damaged." in page
    assert "No trace of it" not in page


def test_a_long_timeline_says_that_it_is_cut(asked) -> None:
    entries = [TOLD[4].replace("r2", f"r{number}") for number in range(120)]
    page, answer = asked(*entries)
    assert (len(events_on(page)), len(answer["timeline"])) == (101, 100)
    assert "The first 100 events; JSON has all that clients told." in page
    assert len(answer["tracks"]["traces"]["events"]) == 120
