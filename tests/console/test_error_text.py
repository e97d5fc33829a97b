"""Errors of the gateway in the reader's language."""

import pytest

from console.parts.error_text import error_text
from console.words import LANGUAGES, Words
from console.words_zh_errors import ERRORS
from services.status import CODE_BY_ERROR, reason_of, to_status
from store.errors import ServiceUnavailableError, TopicNotFoundError
from tests.console.asking import Browser, console_over
from tests.gateway.test_servicer import ProtoShard

CHINESE = {"accept-language": "zh-CN"}


def test_every_error_that_travels_is_explained_in_chinese_and_no_explanation_is_left_over() -> None:
    assert {reason_of(error) for error in CODE_BY_ERROR} == set(ERRORS)


@pytest.mark.parametrize("of", [lambda error: error, to_status], ids=["an error", "its status"])
def test_the_own_text_of_an_error_stays_beside_its_explanation(of) -> None:
    error = of(TopicNotFoundError("The store has no topic 'x'.", topic="x"))

    assert error_text(Words("en"), error) == "The store has no topic 'x'."
    assert error_text(Words("zh"), error) == "没有这个主题（The store has no topic 'x'.）"
    assert set(LANGUAGES) == {"en", "zh"}


@pytest.mark.parametrize(
    ("path", "explanation"),
    [
        ("/topics/nope", "没有这个主题"),
        ("/?mode=id&id=zz", "这不是 offsetMsgId"),
        ("/topics/b_log/77", "该主题没有这个队列"),
        ("/groups/no-such", "没有这个消费者组"),
    ],
)
def test_a_failed_page_explains_itself_in_chinese_and_keeps_the_reason(
    browser: Browser, path: str, explanation: str
) -> None:
    chinese, english = browser.ask("GET", path, b"", CHINESE), browser.get(path)

    assert explanation in chinese.text
    assert explanation not in english.text
    assert chinese.status == english.status >= 400


def test_a_shard_that_is_missing_is_explained_in_chinese(records, fan_out) -> None:
    down = ProtoShard(records, failures={"search": ServiceUnavailableError("nobody listens at port 1")})
    app = console_over([ProtoShard(records), down], fan_out)
    page = Browser(app).ask("GET", "/?q=bk3_3", b"", CHINESE).text
    app.close()

    assert "一个后端服务没有应答（nobody listens at port 1）" in page
