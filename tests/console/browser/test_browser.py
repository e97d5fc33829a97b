"""The console in a real browser, over real services on the broker's store."""

import itertools
import json
import re
import urllib.request
from datetime import datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest

from console.web.app import ACTIONS
from tests.console.browser.conftest import HIT_COUNT, HOSTILE_BODIES, HOSTILE_KEY, SIZES, keep_picture
from tests.support.halting import halt, resume
from tests.support.stack import new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

PAGE_BYTES_MAX = 100 * 1024
# Each width with each language (what fits), and each theme with both (what can be read).
LOOKS = (("light", "en"), ("phone", "zh-CN"), ("dark", "zh-CN"), ("phone-dark", "en"))

# A box with rounded corners hides what is wider than it, such as a button: nobody could press it.
CUT_IN_BOXES = """() => [...document.querySelectorAll('.card, .banner, .finder, .empty')]
    .filter(box => box.scrollWidth > box.clientWidth).map(box => box.innerText.slice(0, 80))"""

SEARCH_OF_STEPS = "/?mode=search&topic=Many&cel=" + quote('message.body_text == "nowhere to be found"')


def answer_of(stack, path: str):
    request = urllib.request.Request(
        f"http://{stack.addresses['console']}{path}", headers={"Accept": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as answer:
        return json.load(answer)


def url(stack, path: str) -> str:
    return f"http://{stack.addresses['console']}{path}"


def message_path(message: dict) -> str:
    return f"/messages/{message['offsetMsgId']}?broker={quote(message['brokerName'])}"


def open_search(page, stack, path: str) -> None:
    """Open a page whose first step a busy machine may refuse with the words "try again"."""
    wait_until(lambda: page.goto(url(stack, path)).status not in (429, 503), lambda: page.locator("main").inner_text())


def has_rows(page, count: int) -> bool:
    """A page that a click or a key brought has so many messages; it may still be on its way.

    On a busy machine a page of a find ends early, and says so by a link to the rest: then it is asked for again.
    """
    rows = page.locator(".messages tbody tr")

    def is_there() -> bool:
        if rows.count() != count and page.locator("a[rel=next]").count():
            page.reload()
        return rows.count() == count

    wait_until(is_there, lambda: f"{count} rows, but {rows.count()} at {page.url}: {page.locator('main').inner_text()}")
    return True


@pytest.fixture(scope="session")
def paths(stack) -> dict[str, str]:
    """Every page and mode, by a name for its picture."""
    retries: list[dict[str, str]] = []

    def has_retry() -> bool:
        # On a busy machine the first find may end before it has looked everywhere.
        matches = [match["message"] for match in answer_of(stack, "/?q=bk3_3")["answer"].get("matches", ())]
        retries.extend(message for message in matches if message["topic"].startswith("%RETRY%"))
        return bool(retries)

    wait_until(has_retry, "the retry of bk3_3 is found")
    retry = retries[0]
    topic = quote(retry["topic"], safe="")
    (traced,) = answer_of(stack, "/?mode=key&topic=Traced&key=traced-1")["answer"]["messages"]
    return {
        "find": "/",
        "find-answer": "/?q=bk3_3",
        "find-nothing": "/?q=nowhere",
        "find-many": "/?q=hit",
        "by-key": "/?mode=key&topic=b_log&key=bk3_3&last=all",
        "by-unique-key": f"/?mode=unique&topic={topic}&unique={retry['uniqueKey']}",
        "by-id": f"/?mode=id&id={retry['offsetMsgId']}",
        "by-offset": "/?mode=offset&topic=b_log&queue=0&offset=5",
        "by-content": "/?mode=search&topic=b_log&tag=batch&begin=2020-01-01",
        "by-content-nothing": "/?mode=search&topic=b_log&body=nowhere-to-be-found",
        "failure": "/?mode=key&topic=nope&key=x",
        "explain": "/explain?q=bk3_3",
        "message": message_path(retry),
        "message-hex": f"{message_path(retry)}&view=hex",
        "message-schema": f"{message_path(retry)}&view=schema",
        "message-traced": message_path(traced),
        "message-traced-elsewhere": f"{message_path(traced)}&trace_topic=OwnTraces",
        "topics": "/topics",
        "topics-sorted": "/topics?sort=messages",
        "topic": "/topics/b_log",
        "queue": "/topics/b_log/0?broker=broker-a",
        "topic-lite": "/topics/Chats",
        "lite-topics": "/topics/Chats/lite-topics",
        "lite-topics-group": "/topics/Chats/lite-topics?group=readers&q=user-01",
        "lite-topics-nothing": "/topics/Chats/lite-topics?q=nowhere",
        "group-lite": "/groups/readers",
        "groups": "/groups",
        "group": "/groups/b_cg",
        "members": "/groups/b_cg/members",
        "dead-letters": "/groups/b_cg/dead-letters",
        **{f"action-{action.name}": f"/actions/{action.name}" for _, action in ACTIONS},
        "action-filled": "/actions/send?topic=b_log&keys=a&body=%3Cb%3E",
        "waiting": "/waiting",
        "half-messages": "/half-messages",
        "replicas": "/replicas",
        "store": "/store",
        "reports": "/reports",
        "no-page": "/nope",
    }


@pytest.mark.parametrize(("size", "language"), LOOKS)
def test_every_page_is_accessible_and_fits(stack, paths, open_page, size: str, language: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core: pip install axe-playwright-python"
    )
    page = open_page(size, locale=language)
    violations: dict[str, list[str]] = {}
    for name, path in paths.items():
        answer = page.goto(url(stack, path))
        assert len(answer.body()) < PAGE_BYTES_MAX, name
        page.wait_for_function("() => !document.querySelector('.skeleton')")
        found = axe.Axe().run(page).response["violations"]
        if found:
            violations[name] = [f"{v['id']}: {v['nodes'][0]['html'][:160]}" for v in found]
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], (
            f"{name} is wider than the screen"
        )
        cut = page.evaluate(CUT_IN_BOXES)
        assert cut == [], f"{name} has boxes that cut what is in them"
        keep_picture(page, f"{name}-{size}-{language[:2]}")
    assert violations == {}


def test_chinese_and_dark_are_chosen_and_kept(stack, open_page) -> None:
    page = open_page()
    page.goto(url(stack, "/topics?q=b_"))
    page.click("button[name=language]")
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.url == url(stack, "/topics?q=b_")
    page.click("button[name=theme]")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto(url(stack, "/?q=bk3_3"))
    assert page.locator("h1").inner_text() == "查找消息"
    keep_picture(page, "find-answer-chinese-dark")


def test_it_works_by_keyboard_alone(stack, open_page) -> None:
    page = open_page()
    page.goto(url(stack, "/store"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    page.keyboard.type("bk3_3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=bk3_3")
    assert has_rows(page, 4)
    page.locator(".messages tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/**")
    assert "bk3_3" in page.locator("h1").inner_text()


def test_it_works_without_its_script(stack, paths, open_page) -> None:
    page = open_page(java_script_enabled=False)
    page.goto(url(stack, "/"))
    page.fill("input[name=q]", "bk3_3")
    page.click("button.primary")
    assert has_rows(page, 4)
    page.locator(".messages tbody a").first.click()
    page.click("text=Hex")
    assert page.locator("pre.body").inner_text().startswith("00000000")
    for path in paths.values():
        assert page.goto(url(stack, path)).status in (200, 404)


def test_the_form_of_each_mode_asks_what_it_says(stack, open_page) -> None:
    page = open_page()
    page.goto(url(stack, "/"))
    page.click(".tabs >> text=Topic + key")
    page.fill("input[name=topic]", "b_log")
    page.fill("input[name=key]", "bk3_3")
    assert not page.locator("input[name=begin]").is_visible()
    page.select_option("select[name=last]", "custom")
    page.fill("input[name=begin]", "2020-01-01T00:00:00.000")
    page.click("button.primary")
    assert has_rows(page, 1)
    assert "2020-01-01 00:00:00.000" in page.locator(".banner").inner_text()
    page.click(".tabs >> text=Content")
    page.fill("input[name=cel]", 'message.keys.exists(k, k == "bk3_3")')
    page.click("button.primary")
    page.wait_for_selector(".messages tbody tr")  # the search goes on by itself
    assert has_rows(page, 1)
    assert "size=" not in page.url
    page.click(".tabs >> text=Queue offset")
    page.fill("input[name=offset]", "7")
    page.click("button.primary")
    assert "offset 7" in page.locator(".messages tbody tr").first.inner_text()


@pytest.mark.parametrize("name", HOSTILE_BODIES)
def test_a_hostile_body_is_shown_and_does_nothing(stack, open_page, name: str) -> None:
    page = open_page()
    message = answer_of(stack, f"/?mode=key&topic=Hostile&key={name}")["answer"]["messages"][0]
    for view in ("text", "json", "hex", "protobuf"):
        answer = page.goto(url(stack, f"{message_path(message)}&view={view}"))
        assert (answer.status, len(answer.body()) < PAGE_BYTES_MAX) == (200, True)
        assert page.title().endswith("Reput")
        assert page.locator("pre.body script, pre.body img, pre.body b").count() == 0
    page.goto(url(stack, message_path(message)))
    keep_picture(page, f"hostile-{name}")
    with page.expect_download() as downloading:
        page.click("text=Download")
    with open(downloading.value.path(), "rb") as saved:
        assert saved.read() == HOSTILE_BODIES[name]


def test_a_hostile_key_is_found_by_its_link_and_shown_as_it_is(stack, open_page) -> None:
    page = open_page()
    page.goto(url(stack, f"/?q={quote(HOSTILE_KEY)}"))
    row = page.locator(".messages tbody tr").first
    assert "<b>'\"&⟦U+202E⟧x" in row.inner_text()
    row.locator("a").first.click()
    page.locator("dd a.key").first.click()
    assert has_rows(page, 1)


def test_thousands_of_hits_are_leafed_through_to_the_end(stack, open_page) -> None:
    page = open_page()
    page.goto(url(stack, "/?mode=key&topic=Many&key=hit&size=50"))
    assert has_rows(page, 50)
    assert "More follows" in page.locator(".banner").inner_text()
    page.click("a[rel=next]")
    assert has_rows(page, 50)
    # The rest by the same links, without drawing each page.
    seen, path = 100, page.locator("a[rel=next]").get_attribute("href")
    while path:
        with urllib.request.urlopen(url(stack, path), timeout=WAIT_SECONDS_MAX) as answer:
            html = answer.read().decode()
        assert len(html) < PAGE_BYTES_MAX
        seen += html.count('class="stretched"')
        following = re.search(r'rel="next" href="([^"]+)"', html)
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == HIT_COUNT


def test_a_search_goes_on_by_itself_to_the_end_and_stops_when_it_is_told_to(stack, open_page) -> None:
    page = open_page()
    steps = []
    page.on("response", lambda answer: steps.append(answer.url) if "part=result" in answer.url else None)
    first_and_last = "/?mode=search&topic=Many&cel=" + quote(f'message.body_text in ["hit 0", "hit {HIT_COUNT - 1}"]')
    open_search(page, stack, first_and_last)
    page.click("[data-run-stop]")
    page.wait_for_selector("[data-run-state]:has-text('Stopped')")
    stopped_at = len(steps)
    assert "the search is not complete" in page.locator("main").inner_text() or page.locator(".messages tr").count()
    keep_picture(page, "search-stopped")
    page.click("[data-run-start]")
    page.wait_for_selector("main:has-text('Everything was searched.')")
    assert has_rows(page, 2)
    assert page.locator("progress").get_attribute("value") == str(HIT_COUNT)
    assert page.locator("[data-run]").is_hidden()
    assert "2 shown" in page.locator(".banner").inner_text()
    assert len(steps) > stopped_at
    keep_picture(page, "search-done")


def test_a_search_without_the_script_goes_on_by_its_link(stack, open_page) -> None:
    page = open_page(java_script_enabled=False)
    open_search(page, stack, SEARCH_OF_STEPS)
    assert "There is no such message" not in page.locator("main").inner_text()
    assert not page.locator("[data-run]").is_visible()
    page.click("a[rel=next] >> text=Search on")
    assert page.locator("progress").count() == 1


def test_a_search_that_goes_on_left_no_time_to_others(stack, open_page) -> None:
    page = open_page()
    steps = []
    page.on("requestfinished", lambda asked: steps.append(asked.timing) if "part=result" in asked.url else None)
    open_search(page, stack, SEARCH_OF_STEPS)
    page.wait_for_selector("main:has-text('Everything was searched.')")

    assert len(steps) > 1
    took_millis = sum(step["responseEnd"] for step in steps[:-1])
    pause_millis = sum(
        after["startTime"] - before["startTime"] - before["responseEnd"] for before, after in itertools.pairwise(steps)
    )
    assert pause_millis > took_millis / 2


def test_why_a_step_was_partial_is_still_said_at_the_end(stack, open_page) -> None:
    page = open_page()
    steps = []

    def first_is_partial(route) -> None:
        answer = route.fetch()
        html = answer.text()
        if not answer.ok:  # refused by a busy machine: the page asks again
            route.fulfill(response=answer)
            return
        if not steps:
            note = '<section class="banner warn"><span data-count></span> broker-x is down'
            html = re.sub(r'<section class="banner \w+"', f"{note}</section>\\g<0> hidden", html)
            html = html.replace("/?mode=search", "/?partial=1&amp;mode=search")
        steps.append(html)
        route.fulfill(response=answer, body=html)

    page.route("**/*part=result*", first_is_partial)
    open_search(page, stack, "/?mode=search&topic=Many&cel=" + quote('message.body_text == "hit 0"'))
    page.wait_for_selector(".messages tbody tr")
    page.wait_for_function("() => !document.querySelector('[data-goes-on]')")

    assert len(steps) > 1
    assert "matches may be missing from an earlier page" in steps[-1]
    assert "broker-x is down" in page.locator(".banner").first.inner_text()
    assert "1 shown" in page.locator(".banner").first.inner_text()
    assert "Everything was searched." not in page.locator("main").inner_text()


def test_a_live_tail_says_what_it_does_not_look_at(stack, open_page) -> None:
    page = open_page()
    lack = {"shards": ["broker-x"], "unfollowedQueueCount": 3, "busy": True}
    stream = f"retry: 100000\n\nevent: partial\ndata: {json.dumps(lack)}\n\nevent: skipped\ndata: 7\n\n"
    page.route("**/topics/b_log/tail*", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    page.goto(url(stack, "/topics/b_log"))
    page.click("[data-tail-start]")
    page.wait_for_function("() => document.querySelector('[data-tail-note]').innerText.includes('7')")

    said = page.locator("[data-tail-note]").inner_text()
    assert (
        "no answer from: broker-x · queues not followed: 3 · Too busy · more messages arrived than are shown: 7" in said
    )


def send_until_a_row_comes(page, send) -> None:
    """Until the tail's first look is over, a message may be from before it."""

    def has_row() -> bool:
        if page.locator(".tail-row").count():
            return True
        send()
        return False

    wait_until(has_row, "a row of the tail", poll_seconds=0.2)


def test_a_live_tail_shows_what_comes_pauses_and_goes_on_where_it_was(stack, open_page) -> None:
    from reput.gateway.v1 import gateway_service_pb2 as pb

    def send(text: str) -> None:
        request = pb.AppendMessagesRequest(messages=[new_message("Tailed", text.encode(), queue_id=0, keys=[text])])
        stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)

    send("before")
    stack.wait_until_built()
    page = open_page()
    page.goto(url(stack, "/topics/Tailed"))
    page.click("[data-tail-start]")
    page.wait_for_selector("[data-tail-state].good")
    send_until_a_row_comes(page, lambda: send("first"))
    page.click("[data-tail-pause]")
    assert page.locator("[data-tail-state]").inner_text() == "Paused"
    send("paused")
    assert page.locator(".tail-row:has-text('paused')").count() == 0
    page.click("[data-tail-start]")
    page.wait_for_selector(".tail-row:has-text('paused')")
    assert page.locator(".tail-row:has-text('before')").count() == 0
    keep_picture(page, "live-tail")


def test_a_live_tail_with_tags_shows_theirs_alone_and_keeps_them(stack, open_page) -> None:
    from reput.gateway.v1 import gateway_service_pb2 as pb

    def send(text: str, tags: str) -> None:
        messages = [new_message("Tagged", text.encode(), queue_id=0, keys=[text], tags=tags)]
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)

    send("before", "TagA")
    stack.wait_until_built()
    page = open_page()
    page.goto(url(stack, "/topics/Tagged"))
    page.fill("[data-tail-tag]", "TagA || TagB")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-tail-state].good")
    assert page.url == url(stack, "/topics/Tagged?tag=TagA+%7C%7C+TagB")
    send_until_a_row_comes(page, lambda: send("first", "TagB"))
    send("other", "TagC")
    page.wait_for_function("() => document.querySelector('[data-tail-passed]').innerText.endsWith(' 1')")

    page.click("[data-tail-pause]")
    send("other-still", "TagC")
    send("paused", "TagA")
    page.click("[data-tail-start]")
    page.wait_for_selector(".tail-row:has-text('paused')")
    assert page.locator(".tail-row:has-text('other'), .tail-row:has-text('before')").count() == 0

    # Others are asked for from where it was, and a new tab begins with those of the address.
    page.fill("[data-tail-tag]", "TagC")
    page.keyboard.press("Enter")
    send("at-last", "TagC")
    page.wait_for_selector(".tail-row:has-text('at-last')")
    page.reload()
    assert page.input_value("[data-tail-tag]") == "TagC"

    page.fill("[data-tail-tag]", "||")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('[data-tail-note]').innerText.includes('TagA || TagB')")
    assert page.locator("[data-tail-state]").inner_text() == "Ended"


def test_the_store_page_moves(stack, open_page) -> None:
    from reput.gateway.v1 import gateway_service_pb2 as pb

    page = open_page()
    page.goto(url(stack, "/store"))
    before = page.locator("tbody td").nth(1).inner_text()
    request = pb.AppendMessagesRequest(messages=[new_message("Many", b"x" * 1000)])
    stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
    page.wait_for_function("before => document.querySelectorAll('tbody td')[1].innerText !== before", arg=before)
    page.wait_for_selector(".line-path")


def test_a_shard_that_is_down_and_an_empty_store(tmp_path, open_page) -> None:
    with running_stack(tmp_path / "empty", "--followers-apart") as stack:
        stack.wait_until_built()
        page = open_page()
        page.goto(url(stack, "/?q=anything"))
        assert "There is no such message." in page.locator("main").inner_text()
        page.goto(url(stack, "/topics"))
        keep_picture(page, "empty-topics")
        # Stopped, not killed: a dead child would end the stack.
        index = stack.children()["index_svc"]
        halt(index)
        try:
            page.goto(url(stack, "/store"))
            assert "no answer" in page.locator("main").inner_text()
            keep_picture(page, "shard-down-store")
        finally:
            resume(index)


def test_ids_and_keys_are_copied_by_a_button(stack, paths, open_page) -> None:
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(url(stack, paths["message"]))
    for button in page.locator("button[data-copy]").all():
        wanted = button.get_attribute("data-copy")
        button.click()
        wait_until(lambda button=button: button.inner_text() == "Copied", "the button to say so")
        assert page.evaluate("navigator.clipboard.readText()") == wanted
        assert wanted in page.locator("dl.facts-list").first.inner_text()
    assert page.locator("button[data-copy]").count() >= 3


def test_times_are_those_of_the_browsers_zone_and_urls_have_utc(stack, open_page) -> None:
    page = open_page(timezone_id="Asia/Kolkata")
    page.goto(url(stack, "/?mode=key&topic=Many&key=hit&begin=2020-01-01T00:00&end=2096-01-01T00:00"))
    time = page.locator(".messages time").first
    utc = time.get_attribute("datetime")
    in_zone = datetime.fromisoformat(utc).astimezone(ZoneInfo("Asia/Kolkata"))

    assert time.text_content() == in_zone.isoformat(" ", "milliseconds").removesuffix("+05:30")
    assert page.locator("footer [data-zone]").text_content() in ("Asia/Kolkata", "Asia/Calcutta")
    assert page.locator("[name=begin]").input_value() == "2020-01-01T05:30"
    page.locator("[name=begin]").fill("2020-01-01T06:30")
    page.locator("form.fields button.primary").click()
    page.wait_for_url("**begin=2020-01-01T01%3A00**")
    assert "end=2096-01-01T00%3A00" in page.url

    page.locator("[data-zone-switch]").click()
    wait_until(lambda: page.locator("footer [data-zone]").text_content() == "UTC", "the page to have UTC")
    assert page.locator(".messages time").first.text_content() == utc.replace("T", " ").removesuffix("Z")
    assert page.locator("[name=begin]").input_value() == "2020-01-01T01:00"


def test_each_line_of_the_api_is_copied_by_a_button(stack, open_page) -> None:
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(url(stack, "/api"))
    lines = page.locator("#AppendMessageStream .shell-line")

    lines.nth(0).locator("button").click()
    wait_until(lambda: lines.nth(0).locator("button").inner_text() == "Copied", "the button to say so")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == lines.nth(0).locator("code").text_content()
    assert copied.endswith("reput.gateway.v1.GatewayService/AppendMessageStream")
