"""What became of a message, and dead letters that are sent again, in a real browser over services on the broker's store."""

import base64
import json
import urllib.request
from collections.abc import Iterator

import pytest
from google.protobuf import descriptor_pb2

from reput.message.v1 import message_pb2
from store.format.delivery.consumer_files import decode_offsets
from tests.console.browser.conftest import keep_picture
from tests.support.fixture_stores import unpack_store
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.browser

DEAD_LETTERS = "/groups/b_cg/dead-letters"


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Services of its own: dead letters that are sent again would be found by other tests."""
    root = unpack_store("broker", tmp_path_factory.mktemp("delivery") / "store")
    offsets = (root / "config" / "consumerOffset.json").read_bytes()
    with running_stack(root) as running:
        running.wait_until_built()
        running.broker_offsets = offsets
        yield running


def url(stack: Stack, path: str) -> str:
    return f"http://{stack.addresses['console']}{path}"


def answer_of(stack: Stack, path: str) -> dict:
    request = urllib.request.Request(url(stack, path), headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as answer:
        return json.load(answer)


def message_at(stack: Stack, queue_id: int, offset: int) -> dict:
    found = answer_of(stack, f"/?mode=offset&topic=b_log&queue={queue_id}&offset={offset}")["answer"]["messages"]
    return found[0]


def test_the_timeline_says_what_the_brokers_consumer_offsets_say(own_stack, open_page) -> None:
    """The store's config/consumerOffset.json was written by RocketMQ 5.3.3."""
    consumed = decode_offsets(own_stack.broker_offsets)["b_cg", "b_log"]
    assert len(consumed) == 4
    page = open_page()
    for queue_id, offset in consumed.items():
        message = message_at(own_stack, queue_id, offset - 1)

        page.goto(url(own_stack, f"/messages/{message['offsetMsgId']}"))

        assert page.locator(".event.now .group-state:has-text('b_cg') .state").inner_text() == "Consumed"
    keep_picture(page, "timeline")


def test_dead_letters_are_checked_confirmed_and_sent_again(own_stack, open_page) -> None:
    page = open_page()
    page.goto(url(own_stack, DEAD_LETTERS))
    count = page.locator(".messages tbody tr").count()
    assert count > 0
    page.click(".resend button")
    assert f"{count} dead letter" in page.locator("#check").inner_text()
    keep_picture(page, "dead-letters-check")
    page.click("#check button.primary")  # without the tick the browser keeps the form
    assert page.locator("#check").count() == 1

    page.check("#check input[type=checkbox]")
    page.click("#check button.primary")
    page.wait_for_selector("main:has-text('sent again.')")
    keep_picture(page, "dead-letters-sent")
    href = page.locator("tbody td a.mono").first.get_attribute("href")

    wait_until(lambda: "message" in answer_of(own_stack, href), "the new message is stored")
    new = answer_of(own_stack, href)["message"]
    assert new["topic"] == "b_log"


def ends_of(stack: Stack) -> list[str]:
    return [queue["maxOffset"] for queue in answer_of(stack, "/topics/b_log")["queues"]]


def test_the_check_alone_sends_nothing(own_stack, open_page) -> None:
    before = ends_of(own_stack)
    page = open_page()
    page.goto(url(own_stack, DEAD_LETTERS))
    page.locator("input[name=id]").first.check()
    page.click("text=Send the chosen ones again")
    assert "1 dead letter would be stored" in page.locator("#check").inner_text()

    assert ends_of(own_stack) == before


@pytest.mark.parametrize("size", ["light", "phone-dark"])
def test_a_file_is_sent_from_the_page_of_its_topic_and_not_twice_by_a_reload(
    own_stack, open_page, tmp_path, size: str
) -> None:
    content = bytes(range(256)) * 40 + b"\r\n--x"
    (tmp_path / "body.bin").write_bytes(content)
    page = open_page(size, timezone_id="Asia/Shanghai")
    page.goto(url(own_stack, "/topics/b_log"))
    page.click("text=Send a message")
    page.fill("input[name=keys]", f"sent-{size}")
    page.fill("textarea[name=properties]", "color=<b>blue</b>\nsize=2")
    page.set_input_files("input[name=file]", str(tmp_path / "body.bin"))
    page.click("form.fields button")
    assert "<b>blue</b>" in page.locator("#check").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= (390 if "phone" in size else 1280)
    keep_picture(page, f"action-check-{size}")
    page.check("#check input[type=checkbox]")
    page.click("#check button.primary")
    page.wait_for_selector("main:has-text('The message is stored.')")
    page.reload()
    page.wait_for_selector("main:has-text('This was confirmed before')")

    found = f"/?mode=key&topic=b_log&key=sent-{size}"
    wait_until(lambda: answer_of(own_stack, found)["answer"].get("messages"), "the message is found")
    (message,) = answer_of(own_stack, found)["answer"]["messages"]
    assert base64.b64decode(message["body"]) == content
    assert message["properties"]["color"] == "<b>blue</b>"


def test_a_time_of_a_form_is_typed_in_the_browsers_zone(own_stack, open_page) -> None:
    page = open_page(timezone_id="Asia/Shanghai")
    page.goto(url(own_stack, "/actions/send?topic=b_log&body=x"))
    page.fill("input[name=at]", "2030-01-02T08:00:00.000")
    page.click("form.fields button")

    assert "2030-01-02 00:00:00.000 UTC" in page.locator("#check").inner_text()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_what_an_action_will_do_is_accessible(own_stack, open_page, language: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core: pip install axe-playwright-python"
    )
    page = open_page("phone", locale=language)
    page.goto(url(own_stack, "/actions/reset-offset?group=b_cg&topic=b_log&to=earliest"))
    page.click("form.fields button")
    assert page.locator("#check tbody tr").count() == 4
    found = axe.Axe().run(page).response["violations"]
    assert [each["id"] for each in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep_picture(page, f"action-reset-{language[:2]}")


def test_an_uploaded_descriptor_set_shows_a_body_by_its_fields(own_stack, open_page, tmp_path) -> None:
    files, waiting = {}, [message_pb2.DESCRIPTOR]
    while waiting:
        file = waiting.pop()
        files[file.name] = file
        waiting += [each for each in file.dependencies if each.name not in files]
    made = descriptor_pb2.FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(made.file.add())
    path = tmp_path / "contract.binpb"
    path.write_bytes(made.SerializeToString())
    page = open_page()
    page.goto(url(own_stack, f"/messages/{message_at(own_stack, 0, 3)['offsetMsgId']}?view=schema"))

    page.set_input_files("[data-upload] input[type=file]", str(path))
    page.click("[data-upload] button")
    page.wait_for_url("**schema=*")

    assert page.locator("select[name=type] option").count() > 3
    page.locator("select[name=type]").select_option("reput.message.v1.NewMessage")
    page.click(".schema button:has-text('Show')")
    assert page.input_value("select[name=type]") == "reput.message.v1.NewMessage"


@pytest.mark.parametrize("size", ["light", "phone"])
def test_the_search_box_is_on_every_page_and_the_slash_goes_to_it(own_stack, open_page, size: str) -> None:
    page = open_page(size)
    for path in ("/", "/topics", "/groups", "/store", "/replicas", "/waiting", "/reports", "/nope"):
        page.goto(url(own_stack, path))
        page.locator("h1").first.click()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "q", path
    page.keyboard.type("bk3_3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=bk3_3")


def test_the_search_box_is_on_the_page_of_a_message_too(own_stack, open_page) -> None:
    page = open_page()
    page.goto(url(own_stack, f"/messages/{message_at(own_stack, 0, 3)['offsetMsgId']}"))
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"


def test_a_part_that_never_comes_ends_with_a_word(own_stack, open_page) -> None:
    page = open_page()
    skeleton = '<div data-load="/never" data-load-failed="no answer"><span class="skeleton"></span></div>'

    def with_a_place(route) -> None:
        answer = route.fetch()
        html = answer.text().replace("</main>", f"{skeleton}</main>")
        route.fulfill(response=answer, body=html)

    page.route("**/topics", with_a_place)
    page.route("**/never", lambda route: route.abort())
    page.goto(url(own_stack, "/topics"))

    page.wait_for_selector("[data-load='/never']:has-text('no answer')")
    assert page.locator("[data-load='/never'] .skeleton").count() == 0


def test_on_a_phone_the_modes_are_one_strip(own_stack, open_page) -> None:
    page = open_page("phone")
    page.goto(url(own_stack, "/"))
    tops = {round(box["y"]) for box in (link.bounding_box() for link in page.locator("nav.tabs a").all())}
    assert len(tops) == 1


def test_on_a_phone_the_open_mode_and_page_are_in_sight(own_stack, open_page) -> None:
    page = open_page("phone")
    for path in ("/?mode=search", "/reports"):
        page.goto(url(own_stack, path))
        for link in page.locator("nav a[aria-current]").all():
            box = link.bounding_box()
            assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
