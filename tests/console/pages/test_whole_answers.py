"""What a page says of the whole answer: not that all was looked at while something was not, now or on a page before."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.rpc import status_pb2

from console.pages.reports import Reports
from console.web.app import ConsoleApp, ConsoleSource
from console.web.request_guard import RequestGuard
from console.web.sign_in import NoSignIn
from gateway.queries.page import check_topic
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import PermissionDeniedError, TopicNotFoundError
from tests.console.asking import Browser, Tags
from tests.console.pages.test_results import next_of, rows_of

COMPLETE = message_pb2.COMPLETENESS_COMPLETE
TRUNCATED = message_pb2.COMPLETENESS_TRUNCATED
PARTIAL = message_pb2.COMPLETENESS_PARTIAL
DOWN = pb.ShardOutcome(broker_name="broker-b", error=status_pb2.Status(code=14, message="shard broker-b is down"))


class Answers:
    """A gateway whose answers are given by hand; it keeps what it was asked."""

    def __init__(self, **methods: Callable[[Any], Any]) -> None:
        self.asked: list[Any] = []
        for name, answer in methods.items():
            setattr(self, name, self._answering(answer))

    def GetStatus(self, _request: Any, _context: Any) -> pb.GetStatusResponse:
        """Asked for by every page that found nothing."""
        return pb.GetStatusResponse()

    def _answering(self, answer: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answered(request: Any, _context: Any) -> Any:
            kept = type(request)()
            kept.CopyFrom(request)
            self.asked.append(kept)
            return answer(request)

        return answered


@pytest.fixture
def browser_of() -> Iterator[Callable[..., tuple[Browser, Answers]]]:
    """A browser before such a gateway."""
    apps = []

    def opened(**methods: Callable[[Any], Any]) -> tuple[Browser, Answers]:
        answers = Answers(**methods)
        app = ConsoleApp(ConsoleSource(answers, NoSignIn(), RequestGuard(), Reports(None)))
        apps.append(app)
        return Browser(app), answers

    yield opened
    for app in apps:
        app.close()


def by_key(request: pb.QueryMessageByKeyRequest) -> pb.QueryMessageByKeyResponse:
    """One message of any topic that there may be, with any key."""
    check_topic(request.topic)
    assert request.page_token in ("", "of-the-key")
    answer = pb.QueryMessageByKeyResponse(completeness=COMPLETE)
    answer.messages.add(topic=request.topic, offset_msg_id="AB", keys=[request.key])
    return answer


def steps_of_find(*pages: list[str]) -> Callable[[Any], pb.FindMessageResponse]:
    """Find's answers, one a step: ids of what each finds."""

    def find(request: pb.FindMessageRequest) -> pb.FindMessageResponse:
        step = int(request.page_token or 0)
        has_next = step + 1 < len(pages)
        answer = pb.FindMessageResponse(completeness=TRUNCATED if has_next else COMPLETE, topic_count=400)
        answer.next_page_token = str(step + 1) if has_next else ""
        for found in pages[step]:
            answer.matches.add().message.offset_msg_id = found
        return answer

    return find


@pytest.mark.parametrize("text", ["https://shop.example/orders#42", "payments#42"])
def test_a_key_with_a_number_sign_was_given_up_when_the_first_step_found_nothing(browser_of, text: str) -> None:
    browser, answers = browser_of(FindMessage=steps_of_find([], [], ["LATE"]), QueryMessageByKey=by_key)
    url, shown = f"/?q={text.replace('#', '%23')}", []
    while url:
        page = browser.get(url)
        assert page.status == 200
        shown += rows_of(page.text)
        url = next_of(page.text)

    assert shown == ["LATE"]
    assert {type(request) for request in answers.asked} == {pb.FindMessageRequest}


def test_topic_and_key_are_asked_for_on_the_last_step_that_found_nothing(browser_of) -> None:
    browser, answers = browser_of(FindMessage=steps_of_find([], []), QueryMessageByKey=by_key)
    first = browser.get("/?q=payments%2342").text

    assert rows_of(first) == []
    assert rows_of(browser.get(next_of(first)).text) == ["AB"]
    assert (answers.asked[-1].topic, answers.asked[-1].key, answers.asked[-1].page_token) == ("payments", "42", "")


def test_topic_and_key_are_not_complete_when_the_key_may_be_on_a_shard_that_is_missing(browser_of) -> None:
    def find(_request: pb.FindMessageRequest) -> pb.FindMessageResponse:
        return pb.FindMessageResponse(completeness=PARTIAL, shards=[DOWN])

    browser, _ = browser_of(FindMessage=find, QueryMessageByKey=by_key)
    page = browser.get("/?q=payments%2342").text

    assert rows_of(page) == ["AB"]
    assert "matches may be missing" in Tags(page).text
    assert browser.get_json("/?q=payments%2342").json["partial"] is True


def test_what_was_found_as_a_key_is_not_followed_by_topic_and_key(browser_of) -> None:
    browser, answers = browser_of(FindMessage=steps_of_find(["FOUND"], [], []), QueryMessageByKey=by_key)
    url, shown = "/?q=payments%2342", []
    while url:
        page = browser.get(url).text
        shown += rows_of(page)
        url = next_of(page)

    assert shown == ["FOUND"]
    assert {type(request) for request in answers.asked} == {pb.FindMessageRequest}


@pytest.mark.parametrize("refusal", [PermissionDeniedError("not yours"), TopicNotFoundError("none")])
def test_a_key_that_is_nowhere_is_no_error_when_what_is_before_the_number_sign_is_no_topic(browser_of, refusal) -> None:
    def refused(_request: Any) -> Any:
        raise refusal

    browser, _ = browser_of(FindMessage=steps_of_find([]), QueryMessageByKey=refused)
    assert "There is no such message." in Tags(browser.get("/?q=payments%2342").text).text
    browser, _ = browser_of(FindMessage=steps_of_find([]), QueryMessageByKey=by_key)
    assert "There is no such message." in Tags(browser.get("/?q=https://shop.example/%2342").text).text


def searching(*steps: int) -> Callable[[Any], pb.SearchMessagesResponse]:
    """Answers to a search, by how complete each is."""

    def search(request: pb.SearchMessagesRequest) -> pb.SearchMessagesResponse:
        step = int(request.page_token or 0)
        is_last = step + 1 == len(steps)
        return pb.SearchMessagesResponse(
            completeness=steps[step],
            total_record_count=100,
            passed_record_count=100 * (step + 1) // len(steps),
            stop=pb.SEARCH_STOP_END if is_last else pb.SEARCH_STOP_TIME,
            next_page_token="" if is_last else str(step + 1),
        )

    return search


def test_the_last_page_after_a_partial_one_said_complete(browser_of) -> None:
    browser, _ = browser_of(SearchMessages=searching(PARTIAL, TRUNCATED, COMPLETE))
    url, answers = "/?mode=search&topic=T&body=x", []
    while url:
        html, answer = Tags(browser.get(url).text).text, browser.get_json(url).json
        answers.append(answer)
        assert "matches may be missing" in html
        assert "Partial" in html
        assert "verything was searched." not in html
        assert "every match is here" not in html
        url = answer.get("next", "")

    assert [answer["partial"] for answer in answers] == [True, True, True]
    assert [answer["question"] for answer in answers] == [answers[0]["question"] | page for page in pages_of(answers)]
    # The first page is asked for as before.
    last = browser.get(answers[1]["next"]).text
    (first,) = [
        a["href"]
        for tag, a in Tags(last).tags
        if tag == "a" and a.get("href", "").startswith("/?mode=search&topic=T&body=x") and "format" not in a["href"]
    ]
    assert first == "/?mode=search&topic=T&body=x"


def pages_of(answers: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{}, *({"page": str(number)} for number in range(1, len(answers)))]


def test_a_partial_answer_that_ends_said_that_everything_was_looked_at(browser_of) -> None:
    browser, _ = browser_of(SearchMessages=searching(PARTIAL))

    text = Tags(browser.get("/?mode=search&topic=T&body=x").text).text

    assert "verything was searched" not in text
    assert "100%" not in text


def test_a_complete_answer_that_ends_says_that_everything_was_looked_at(browser_of) -> None:
    browser, _ = browser_of(SearchMessages=searching(TRUNCATED, COMPLETE))
    first = browser.get("/?mode=search&topic=T&body=x")

    text = Tags(browser.get(next_of(first.text)).text).text

    assert "100%: 100 of 100 messages were searched. Everything was searched." in text
    assert browser.get_json(next_of(first.text)).json["partial"] is False


@pytest.mark.parametrize("path", ["/topics", "/topics?q=order"])
def test_no_topic_was_said_to_be_there_while_a_shard_was_missing(browser_of, path: str) -> None:
    browser, _ = browser_of(ListTopics=lambda _: pb.ListTopicsResponse(completeness=PARTIAL, shards=[DOWN]))

    text = Tags(browser.get(path).text).text

    assert "Nothing was found in the part that answered." in text
    assert "No topic name contains this text." not in text
    assert "The store has no topic yet." not in text


def test_the_last_step_of_find_counted_its_own_topics_as_all(browser_of) -> None:
    browser, _ = browser_of(FindMessage=steps_of_find([], []))
    first = browser.get("/?q=nowhere").text

    assert "This step looked in 400 topics." in Tags(first).text
    assert "This step looked in 400 topics." in Tags(browser.get(next_of(first)).text).text
    browser, _ = browser_of(FindMessage=steps_of_find([]))
    assert "Looked in 400 topics." in Tags(browser.get("/?q=nowhere").text).text


def test_a_star_as_a_tag_of_a_search_was_a_tag_named_so(browser_of) -> None:
    browser, answers = browser_of(SearchMessages=searching(COMPLETE))

    browser.get("/?mode=search&topic=T&tag=*")
    browser.get("/?mode=search&topic=T&tag=TagA||TagB")

    assert [list(request.tags) for request in answers.asked] == [[], ["TagA", "TagB"]]
    refused = browser.get("/?mode=search&topic=T&tag=||")
    assert refused.status == 400
    assert 'name="tag"' in refused.text
    assert len(answers.asked) == 2
