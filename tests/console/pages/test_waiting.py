"""The page of messages that wait."""

from tests.console.asking import Browser, Tags


def test_the_page_shows_what_waits_for_its_time_and_for_a_verdict(browser: Browser) -> None:
    page = browser.get("/waiting")
    assert page.status == 200
    assert page.text.count("waiting-topic") >= 50
    answer = browser.get_json("/waiting").json
    assert (len(answer["scheduled"]["messages"]), answer["scheduled"]["pendingCount"]) == (50, "150")
    halves = browser.get("/half-messages").text
    assert halves.count("waiting-topic") >= 2
    assert "K2 &lt;b&gt;" in halves
    answer = browser.get_json("/half-messages").json
    assert [each["uniqueKey"] for each in answer["transactions"]["transactions"]] == ["K1", "K2 <b>"]


def test_the_pages_of_what_waits_hold_each_message_once(browser: Browser) -> None:
    seen, url = [], "/waiting"
    while url:
        seen += [each["uniqueKey"] for each in browser.get_json(url).json["scheduled"]["messages"]]
        following = [a["href"] for tag, a in Tags(browser.get(url).text).tags if tag == "a" and a.get("rel") == "next"]
        url = following[0] if following else ""

    assert sorted(seen) == sorted(f"M{number}" for number in range(150))


def test_a_topic_narrows_the_page_and_an_unknown_one_is_said(browser: Browser, records) -> None:
    quiet = next(record.topic for record in records if not record.topic.startswith("%"))
    assert "No message waits for its time." in browser.get(f"/waiting?topic={quiet}").text
    assert browser.get("/waiting?topic=no-such").status == 404


def test_the_page_is_one_of_the_sections_in_both_languages(browser: Browser) -> None:
    assert 'href="/waiting"' in browser.get("/").text
