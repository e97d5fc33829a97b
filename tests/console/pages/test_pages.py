"""Every page over the broker fixture's records: what it shows, that its JSON is what OpenAPI says, and how large it is."""

import base64
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock
from urllib.parse import quote

import jsonschema
import pytest

from console.pages.message import trace_contexts
from console.pages.topics import SORTS
from console.web.openapi import openapi
from gateway.groups.asked_members import Told
from gateway.queries.page import PAGE_BYTES_MAX as PAGE_BODY_BYTES_MAX
from store.errors import RecordCorruptedError, ServiceUnavailableError
from store.format.message_id import encode_offset_msg_id
from store.format.properties import encode_properties
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.reput.test_running_info import DOCUMENT
from tests.support.compressed_bodies import BODY, LZ4_FLAG, STORED

PAGE_BYTES_MAX = 100 * 1024
DESCRIPTION = openapi()


def schema_of(path: str) -> dict:
    schema = DESCRIPTION["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return {**schema, "components": DESCRIPTION["components"]}


def id_of(record) -> str:
    return encode_offset_msg_id(record.store_host, record.commit_log_offset)


def message_path(record) -> str:
    return f"/messages/{id_of(record)}?broker=broker-a"


@pytest.fixture
def paths(records) -> dict[str, list[str]]:
    """URLs by the path of their description."""
    keyed = next(record for record in records if record.keys and record.unique_key)
    retry = next(record for record in records if record.topic.startswith("%RETRY%"))
    topic, key = quote(keyed.topic, safe=""), quote(keyed.keys[0], safe="")
    return {
        "/": [
            "/",
            f"/?q={key}",
            f"/?q={id_of(keyed)}",
            f"/?q={topic}+{key}",
            f"/?mode=key&topic={topic}&key={key}&last=all",
            f"/?mode=unique&topic={topic}&unique={keyed.unique_key}",
            f"/?mode=id&id={id_of(keyed)}",
            f"/?mode=offset&topic={topic}&queue={keyed.queue_id}&offset=0&size=50",
            f"/?mode=search&topic={topic}&order=oldest&size=50",
            "/?q=nowhere",
        ],
        "/messages/{offset_msg_id}": [
            message_path(keyed),
            message_path(retry),
            *(f"{message_path(keyed)}&view={view}" for view in ("text", "json", "hex", "protobuf")),
        ],
        "/explain": [f"/explain?q={key}", f"/explain?mode=key&topic={topic}&key={key}"],
        "/topics": ["/topics", "/topics?q=LOG", "/topics?part=rows", *(f"/topics?sort={sort}" for sort in SORTS)],
        "/topics/{topic}": [
            f"/topics/{topic}",
            f"/topics/{quote(retry.topic, safe='')}",
            f"/topics/{topic}?part=rates",
        ],
        "/topics/{topic}/lite-topics": [f"/topics/{topic}/lite-topics", "/topics/chats/lite-topics?q=a&group=g"],
        "/topics/{topic}/{queue_id}": [
            f"/topics/{topic}/{keyed.queue_id}",
            f"/topics/{topic}/{keyed.queue_id}?offset=3&broker=broker-a",
            f"/topics/{topic}/{keyed.queue_id}?time=2026-11-21T00:00",
            f"/topics/{topic}/{keyed.queue_id}?offset=999999",
        ],
        "/groups": ["/groups", "/groups?q=order", "/groups?q=nowhere"],
        "/groups/{consumer_group}": ["/groups/g", "/groups/in%20order"],
        "/groups/{consumer_group}/members": [
            "/groups/g/members",
            "/groups/g/members?member=a-client",
            "/groups/g/members?member=nobody",
        ],
        "/groups/{consumer_group}/dead-letters": [
            "/groups/g/dead-letters",
            "/groups/b_cg/dead-letters",
            "/groups/b_cg/dead-letters?page=",
        ],
        "/half-messages": ["/half-messages", "/half-messages?topic=waiting-topic"],
        "/replicas": ["/replicas", "/replicas?part=live"],
        "/waiting": ["/waiting", "/waiting?topic=waiting-topic", f"/waiting?topic={topic}"],
        "/store": ["/store", "/store?part=live"],
        "/tenants": ["/tenants"],
        "/reports": ["/reports"],
    }


@pytest.mark.parametrize(
    "path", [path for path, what in DESCRIPTION["paths"].items() if "text/html" in json.dumps(what)]
)
def test_each_page_is_well_formed_small_and_its_json_is_what_the_description_says(
    path: str, paths: dict[str, list[str]], browser: Browser
) -> None:
    for url in paths[path]:
        html = browser.get(url)
        assert html.status == 200, (url, html.text)
        assert len(html.body) < PAGE_BYTES_MAX, url
        Tags(html.text)
        answer = browser.get_json(url)
        assert answer.headers["content-type"] == "application/json"
        jsonschema.validate(answer.json, schema_of(path), jsonschema.Draft202012Validator)


def test_json_can_be_asked_for_in_the_url(browser: Browser) -> None:
    assert browser.get("/topics?format=json").json["answer"] == browser.get_json("/topics").json["answer"]


def test_the_description_describes_itself_and_refuses_what_is_not_so(browser: Browser) -> None:
    assert browser.get("/openapi.json").json == json.loads(json.dumps(DESCRIPTION))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"mode": "find"}, schema_of("/"), jsonschema.Draft202012Validator)


def test_find_shows_every_message_that_has_the_key_and_no_other(browser: Browser, records) -> None:
    counts = Counter(key for record in records for key in record.keys)
    count, key = max((count, key) for key, count in counts.items() if count <= 50)
    wanted = {id_of(record) for record in records if key in record.keys}
    assert len(wanted) == count

    shown, _ = shown_by_html(browser, f"/?q={quote(key)}&size=50")

    assert set(shown) == wanted


def shown_by_html(browser: Browser, url: str) -> tuple[list[str], str]:
    """The ids on a page, and its link to the next one; empty: there is none."""
    links = [attributes for tag, attributes in Tags(browser.get(url).text).tags if tag == "a"]
    ids = [str(link.get("title")) for link in links if link.get("class") == "stretched"]
    return ids, next((str(link["href"]) for link in links if link.get("rel") == "next"), "")


def shown_by_json(browser: Browser, url: str) -> tuple[list[str], str]:
    """The same from the page's JSON."""
    page = browser.get_json(url).json
    return [message["offsetMsgId"] for message in page["answer"].get("messages", [])], page.get("next", "")


@pytest.mark.parametrize("shown", [shown_by_html, shown_by_json])
def test_all_pages_of_a_query_hold_each_match_once(browser: Browser, records, shown) -> None:
    """A page's ids and link are of one answer: in its time, another search for the same page gets further or less far."""
    topic = Counter(record.topic for record in records).most_common(1)[0][0]
    seen: list[str] = []
    url = f"/?mode=search&topic={topic}&size=50"
    while url:
        ids, url = shown(browser, url)
        seen += ids

    assert sorted(seen) == sorted(id_of(record) for record in records if record.topic == topic)


def test_a_message_page_names_its_retries_and_dead_letters(browser: Browser, records) -> None:
    dead = next(record for record in records if record.topic.startswith("%DLQ%"))
    origin = next(record for record in records if id_of(record) == dead.properties["ORIGIN_MESSAGE_ID"])

    text = Tags(browser.get(message_path(origin)).text).text

    assert "Dead letters 1" in text
    assert "Retries 1" in text
    assert dead.topic in text


def test_a_siblings_dead_letter_and_copies_were_shown_as_those_of_a_message_of_a_batch(
    browser: Browser, records
) -> None:
    """The messages of a batch share a unique key; the dead letter names the one that it was made from."""
    dead = next(record for record in records if record.topic.startswith("%DLQ%"))
    batch = [record for record in records if record.unique_key == dead.unique_key and record.topic == "b_log"]
    assert len(batch) > 1

    for record in batch:
        text = Tags(browser.get(message_path(record)).text).text
        is_origin = id_of(record) == dead.properties["ORIGIN_MESSAGE_ID"]
        assert ("Dead letters" in text, "Retries" in text) == (is_origin, is_origin)
        assert "Copies in this topic" not in text
        assert "Same batch: only the unique key is the same" in text


def page_text(records, shown, fan_out) -> str:
    """The text of the page of one of these records, the only ones of the store."""
    return Tags(Browser(console_over([MemoryShard(records)], fan_out)).get(message_path(shown)).text).text


@pytest.mark.parametrize("names", ["none", "the unique key", "a message that is gone"])
def test_a_retry_that_names_no_other_message_was_shown_as_the_same_batch(records, fan_out, names: str) -> None:
    """POP consumers write no ORIGIN_MESSAGE_ID, and classic clients may write the unique key into it."""
    origin = next(r for r in records if r.unique_key and r.topic == "b_log")
    source = {"none": "", "the unique key": origin.unique_key, "a message that is gone": "0A" * 16}[names]
    added = f"ORIGIN_MESSAGE_ID\x01{source}\x02".encode() if source else b""
    retry = replace(
        origin,
        topic="%RETRY%group_b_log",
        commit_log_offset=origin.commit_log_offset + 100_000,
        properties_bytes=added + origin.properties_bytes,
    )

    text = page_text([origin, retry], origin, fan_out)
    assert "Retries 1" in text
    assert "Same batch" not in text
    text = page_text([origin, retry], retry, fan_out)
    assert "In other topics 1" in text
    assert "Same batch" not in text


@pytest.mark.parametrize("other", ["later", "other queue", "not a neighbour"])
def test_a_message_that_its_producer_sent_again_was_shown_as_the_same_batch(records, fan_out, other: str) -> None:
    first = next(r for r in records if r.unique_key and r.topic == "b_log")
    again = replace(
        first,
        commit_log_offset=first.commit_log_offset + 100_000,
        queue_id=first.queue_id + (other == "other queue"),
        queue_offset=first.queue_offset + 1 + (other == "not a neighbour"),
        store_time_millis=first.store_time_millis + (other == "later"),
    )

    text = page_text([first, again], first, fan_out)
    assert "Copies in this topic 1" in text
    assert "Same batch" not in text


def test_a_delayed_message_is_shown_with_the_record_that_waited_for_it(browser: Browser, records) -> None:
    waited = next(
        record
        for record in records
        if record.topic == "SCHEDULE_TOPIC_XXXX" and "ORIGIN_MESSAGE_ID" not in record.properties
    )
    delivered = next(r for r in records if r.unique_key == waited.unique_key and r is not waited)

    for record, heading in ((delivered, "In system topics"), (waited, "In other topics")):
        text = Tags(browser.get(message_path(record)).text).text
        assert heading in text
        assert "Same batch" not in text


def test_a_body_that_fits_no_answer_was_shown_and_saved_as_empty(records, fan_out) -> None:
    body = b"large " * (PAGE_BODY_BYTES_MAX // 6 + 1)
    size = records[0].store_size_bytes - len(records[0].body) + len(body)
    record = replace(records[0], body=body, sys_flag=0, store_size_bytes=size)
    app = console_over([MemoryShard([record])], fan_out)
    browser = Browser(app)

    page = Tags(browser.get(message_path(record)).text).text
    saved = browser.get(f"/messages/{id_of(record)}/body?broker=broker-a")
    shown = browser.get_json(message_path(record)).json

    assert "large large" in page
    assert "The body is empty" not in page
    assert (saved.status, saved.body) == (200, body)
    assert base64.b64decode(shown["message"]["body"]) == body
    assert "bodyOmitted" not in shown["message"] or not shown["message"]["bodyOmitted"]
    assert shown["body"]["sizeBytes"] == str(len(body))
    app.close()


def test_a_large_body_that_cannot_be_downloaded_is_an_error_and_not_an_empty_file(records, fan_out) -> None:
    body = bytes(PAGE_BODY_BYTES_MAX + 1)
    size = records[0].store_size_bytes - len(records[0].body) + len(body)
    record = replace(records[0], body=body, sys_flag=0, store_size_bytes=size)
    memory = MemoryShard([record])

    def fails_later(commit_log_offset, deadline, given=memory.get, reads=[]):  # noqa: B006  # counts over calls
        reads.append(commit_log_offset)
        if len(reads) > 1:
            raise ServiceUnavailableError("the commitlog is gone", service="commitlog")
        return given(commit_log_offset, deadline)

    memory.get = fails_later
    app = console_over([memory], fan_out)

    assert Browser(app).get(f"/messages/{id_of(record)}/body?broker=broker-a").status == 503
    app.close()


def test_a_message_page_shows_every_property_and_where_it_lies(browser: Browser, records) -> None:
    record = next(record for record in records if len(record.properties) > 6)

    page = Tags(browser.get(message_path(record)).text)

    for name, value in record.properties.items():
        assert name in page.text
        assert value in page.text
    assert f"{record.commit_log_offset:,}" in page.text
    assert f"{record.queue_offset:,}" in page.text


def test_a_message_page_shows_the_lite_topic_of_a_message_that_has_one(browser: Browser, records, fan_out) -> None:
    record = replace(records[0], properties_bytes=b"__LITE_TOPIC\x01chat-1\x02")
    app = console_over([MemoryShard([record])], fan_out)
    text = " ".join(Tags(Browser(app).get(message_path(record)).text).text.split())
    assert "Lite topic __LITE_TOPIC chat-1" in text
    assert "Lite topic" not in browser.get(message_path(records[0])).text
    app.close()


def test_a_message_page_shows_the_priority_of_a_message_that_has_one(browser: Browser, records, fan_out) -> None:
    record = replace(records[0], properties_bytes=b"_SYS_MSG_PRIORITY_\x017\x02")
    app = console_over([MemoryShard([record])], fan_out)
    text = " ".join(Tags(Browser(app).get(message_path(record)).text).text.split())
    assert "Priority _SYS_MSG_PRIORITY_ 7" in text
    assert "Priority" not in browser.get(message_path(records[0])).text
    app.close()


def test_the_download_is_the_body_and_nothing_that_a_browser_would_show(browser: Browser, records) -> None:
    record = next(record for record in records if record.body)

    answer = browser.get(f"/messages/{id_of(record)}/body?stored=1")

    assert answer.body == record.body
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert base64.b64decode(browser.get_json(message_path(record)).json["message"]["body"]) == record.body


@pytest.mark.parametrize("sys_flag", STORED)
def test_a_compressed_body_is_shown_and_saved_inflated_and_as_stored_by_a_link(records, fan_out, sys_flag: int) -> None:
    record = replace(records[0], body=STORED[sys_flag], sys_flag=sys_flag)
    app = console_over([MemoryShard([record])], fan_out)
    browser = Browser(app)

    page = browser.get(message_path(record))
    hrefs = [attributes["href"] for _, attributes in Tags(page.text).tags if "download" in attributes]

    assert [browser.get(str(href)).body for href in hrefs] == [BODY, STORED[sys_flag]]
    assert "again and again, 订单 again" in page.text
    app.close()


def test_a_damaged_compressed_body_is_shown_and_saved_as_stored_and_said_so(records, fan_out) -> None:
    record = replace(records[0], body=STORED[LZ4_FLAG][:-9], sys_flag=LZ4_FLAG)
    app = console_over([MemoryShard([record])], fan_out)
    browser = Browser(app)

    page = browser.get(message_path(record))
    (href,) = [attributes["href"] for _, attributes in Tags(page.text).tags if "download" in attributes]

    assert browser.get(str(href)).body == record.body
    assert "damaged, shown as stored: the message says lz4, but it is cut short" in page.text
    app.close()


def test_topic_rates_count_each_message_once(browser: Browser, records) -> None:
    topic = Counter(record.topic for record in records).most_common(1)[0][0]

    answer = browser.get_json(f"/topics/{topic}?part=rates").json

    times = [record.store_time_millis for record in records if record.topic == topic]
    assert sum(int(queue["maxOffset"]) - int(queue["minOffset"]) for queue in answer["queues"]) == len(times)
    if "rates" in answer:
        rates = answer["rates"]
        begin, end, bars = int(rates["beginMillis"]), int(rates["endMillis"]), len(rates["counts"])
        edges = [begin + (end - begin) * number // bars for number in range(bars)] + [end]
        brute = [sum(low <= time < high for time in times) for low, high in pairwise(edges)]
        assert [int(count) for count in rates["counts"]] == brute


def test_leafing_through_a_queue_meets_each_position_once(browser: Browser, records) -> None:
    topic = Counter(record.topic for record in records).most_common(1)[0][0]
    url, seen = f"/topics/{topic}/0?offset=0&broker=broker-a", []
    while url:
        seen += [int(m.get("queueOffset", 0)) for m in browser.get_json(url).json["answer"].get("messages", [])]
        following = [a["href"] for tag, a in Tags(browser.get(url).text).tags if tag == "a" and a.get("rel") == "next"]
        url = following[0] if following else ""

    assert seen == sorted(record.queue_offset for record in records if (record.topic, record.queue_id) == (topic, 0))


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/?mode=key&topic=nope&key=x", 404, "TOPIC_NOT_FOUND"),
        ("/?mode=id&id=zz", 400, "INVALID_MESSAGE_ID"),
        ("/?mode=dance", 400, "INVALID_ARGUMENT"),
        ("/?mode=offset&topic=b_log&queue=x&offset=0", 400, "INVALID_ARGUMENT"),
        ("/?mode=key&topic=b_log&key=x&begin=soon", 400, "INVALID_ARGUMENT"),
        ("/messages/zz", 400, "INVALID_MESSAGE_ID"),
        ("/topics/nope", 404, "TOPIC_NOT_FOUND"),
        ("/topics/b_log/77", 404, "QUEUE_NOT_FOUND"),
        ("/nope", 404, None),
    ],
)
def test_what_cannot_be_answered_says_why_in_both_forms(
    path: str, status: int, reason: str | None, browser: Browser
) -> None:
    html, answer = browser.get(path), browser.get_json(path)

    assert (html.status, answer.status) == (status, status)
    page = Tags(html.text)
    if reason is not None and not path.startswith("/topics/b_log/77"):
        assert reason in page.text
        assert reason in answer.text
    assert answer.json["code"] != 0


def test_a_shard_that_is_down_is_named_and_the_answer_is_partial(records, fan_out) -> None:
    down = MemoryShard(records, failures={"search": ServiceUnavailableError("nobody listens at port 1")})
    app = console_over([MemoryShard(records), down], fan_out)
    key = next(key for record in records for key in record.keys)

    page = Tags(Browser(app).get(f"/?q={quote(key)}").text)
    app.close()

    assert "Partial" in page.text
    assert "broker-b" in page.text
    assert "nobody listens at port 1" in page.text


def test_an_empty_store_has_all_its_pages(fan_out) -> None:
    app = console_over([MemoryShard([])], fan_out)
    browser = Browser(app)

    assert "There is no such message." in Tags(browser.get("/?q=anything").text).text
    assert "The store has no topic yet." in Tags(browser.get("/topics").text).text
    for path in ("/", "/store", "/reports"):
        assert browser.get(path).status == 200
    app.close()


def test_damage_is_shown_as_damage(records, fan_out) -> None:
    record = records[5]
    shard = MemoryShard(records, damaged={record.commit_log_offset: RecordCorruptedError("byte 7 is wrong", offset=7)})
    app = console_over([shard], fan_out)

    answer = Browser(app).get(message_path(record))
    app.close()

    assert answer.status == 500
    assert "RECORD_CORRUPTED" in answer.text
    assert "byte 7 is wrong" in answer.text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}{% for x in y %}",
    "\u202eevil\u2066",
    "a\x00b\x1b[31m\x7f",
    "</pre></title></textarea><svg onload=alert(1)>",
    "javascript:alert(1)//",
    "k" * 5_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_message_brings_becomes_part_of_the_page(text: str, records, fan_out) -> None:
    plain = next(record for record in records if record.keys and record.topic == "b_log" and record.queue_id == 0)
    key = text.replace(" ", "_")
    properties = {**plain.properties, "KEYS": key, "TAGS": text, "x" + text: text}
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    hostile = replace(plain, body=text.encode() * 3, properties_bytes=raw)
    others = [hostile if record is plain else record for record in records]
    app, calm = console_over([MemoryShard(others)], fan_out), console_over([MemoryShard(records)], fan_out)
    paths = [f"{message_path(plain)}&view={view}" for view in ("text", "json", "hex", "protobuf")]
    paths += [f"/?q={quote(key)}", f"/topics/{quote(plain.topic)}/0?offset={plain.queue_offset}&broker=broker-a"]
    paths += [f"/?mode=search&topic=b_log&tag={quote(text)}", f"/?mode=key&topic={quote(text)}&key=x&last=all"]
    for path in paths:
        answer = Browser(app).get(path)
        assert len(answer.body) < PAGE_BYTES_MAX, path
        tags = Tags(answer.text).tags
        allowed = {tag for tag, _ in Tags(Browser(calm).get(message_path(plain)).text).tags}
        allowed |= {
            "form",
            "label",
            "input",
            "select",
            "option",
            "details",
            "summary",
            "pre",
            "button",
            "strong",
            "p",
            "ul",
            "li",
            "progress",
        }
        assert {tag for tag, _ in tags} <= allowed, path
        scripts = [attributes for tag, attributes in tags if tag == "script"]
        assert len(scripts) == 1
        assert str(scripts[0]["src"]).startswith("/static/console.js?")
        for _, attributes in tags:
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            assert not str(attributes.get("href", "")).startswith(("javascript:", "//", "http"))
        for character in "\u202e\u2066\x00\x1b\x7f":
            # A form gives back what was asked for, so that it can be asked for again.
            assert path.startswith("/?") or character not in answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    app.close()
    calm.close()


def test_the_message_page_shows_how_the_message_stands_with_each_group(
    paths: dict[str, list[str]], browser: Browser
) -> None:
    page = browser.get(paths["/messages/{offset_msg_id}"][0]).text

    for text in (
        "Consumed",
        "Not yet delivered",
        "In flight",
        "Retrying",
        "Dead letter",
        "Filtered out",
        "Skipped by a reset",
    ):
        assert f">{text}</td>" in page, text
    assert 'href="/groups/g-IN_FLIGHT"' in page


def test_the_page_of_a_group_shows_its_members_and_the_queues_that_are_furthest_behind_first(browser: Browser) -> None:
    page = browser.get("/groups/g").text
    members = browser.get("/groups/g/members").text
    lags = [int(text) for text in re.findall(r'data-name="Lag">(\d+)</td>', page)]

    assert "a-client" in members
    assert "a || b" in members
    assert lags
    assert lags == sorted(lags, reverse=True)


def test_the_page_of_members_shows_what_one_of_them_does_now_or_why_that_is_not_known(shard, fan_out) -> None:
    def ask(consumer_group, client_id, told, *, with_stack_trace):
        told(Told(DOCUMENT.encode(), is_by_gateway=True))
        return (consumer_group, client_id, with_stack_trace) == ("g", "a-client", False)

    app = console_over([shard], fan_out, ways=[Mock(ask=ask)])
    page = Browser(app).get("/groups/g/members?member=a-client").text
    nobody = Browser(app).get("/groups/g/members?member=nobody").text
    in_chinese = Browser(app).get("/groups/g/members?member=nobody", accept_language="zh").text
    app.close()
    assert '<div class="fact"><dt class="mono">consumeThreadMax</dt>' in page, "a name and its value are a row"
    assert "消费者组没有这个成员" in in_chinese
    assert 'href="/groups/g/members?member=a-client"' in page
    assert ">12.2</td>" in page or ">12.3</td>" in page
    assert "consumeThreadMax" in page
    assert "The gateway tells this" in page
    assert "has no member" in nobody
    assert "a || b" in nobody, "the members are shown all the same"


TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"traceparent": TRACEPARENT}, ["traceparent"]),
        ({"TRACE_CONTEXT": TRACEPARENT, "traceparent": f"cc{TRACEPARENT[2:]}-later"}, ["traceparent", "TRACE_CONTEXT"]),
        ({"traceparent": TRACEPARENT.upper()}, []),
        ({"traceparent": f"ff{TRACEPARENT[2:]}"}, []),
        ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, []),
        ({"traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01"}, []),
        ({"traceparent": f"{TRACEPARENT}<script>"}, []),
        ({}, []),
    ],
)
def test_the_trace_of_a_message_is_what_its_trace_context_says(properties: dict[str, str], names: list[str]) -> None:
    found = trace_contexts(properties, "https://tracing.example/{trace_id}?span={span_id}")
    assert [each.name for each in found] == names
    assert {each.trace_id for each in found} <= {"4bf92f3577b34da6a3ce929d0e0e4736"}
    assert {each.href for each in found} <= {
        "https://tracing.example/4bf92f3577b34da6a3ce929d0e0e4736?span=00f067aa0ba902b7"
    }


@pytest.mark.parametrize("trace_url", ["", "https://tracing.example/{trace_id}"])
def test_a_message_page_links_its_trace_where_a_tool_is_set(records, fan_out, trace_url: str) -> None:
    record = next(record for record in records if record.topic == "b_order")
    traced = replace(record, properties_bytes=encode_properties({"traceparent": TRACEPARENT}))
    app = console_over([MemoryShard([traced])], fan_out, trace_url=trace_url)
    page = Browser(app).get(f"/messages/{encode_offset_msg_id(record.store_host, record.commit_log_offset)}").text
    app.close()
    assert "4bf92f3577b34da6a3ce929d0e0e4736" in page
    assert ('<a class="mono" href="https://tracing.example/4bf92f3577b34da6a3ce929d0e0e4736"' in page) is bool(
        trace_url
    )
