"""Two languages, the same texts."""

import re
from pathlib import Path

import pytest

import console
from console.words import Words, language_of
from console.words_zh import CHINESE

ROOT = Path(console.__file__).parent
TEXT = re.compile(r"""\b(?:t|words)\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def texts() -> set[str]:
    sources = [*ROOT.glob("templates/*.html"), *ROOT.rglob("*.py")]
    found = (match for path in sources for match in TEXT.finditer(path.read_text(encoding="utf-8")))
    return {(match[1] or match[2]).replace("\\'", "'") for match in found}


def test_every_text_of_the_pages_has_its_chinese_and_no_chinese_is_left_over() -> None:
    assert len(texts()) > 200
    assert texts() ^ set(CHINESE) == set()


def test_translations_have_the_same_places_for_values() -> None:
    assert {
        english
        for english, chinese in CHINESE.items()
        if sorted(PLACEHOLDER.findall(english)) != sorted(PLACEHOLDER.findall(chinese))
    } == set()


@pytest.mark.parametrize(
    ("cookie", "accepted", "language"),
    [
        ("", "", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "de,en;q=0.5,zh;q=0.7", "zh"),
        ("", "de", "en"),
        ("en", "zh-CN", "en"),
        ("xx", "zh", "zh"),
        ("", "zh;q=x, de;q=.." + "a" * 9000, "en"),
    ],
)
def test_the_reader_decides_then_the_browser(cookie: str, accepted: str, language: str) -> None:
    assert language_of(cookie, accepted) == language


def test_values_go_into_both() -> None:
    assert Words("en")("{count} keys", count=3) == "3 keys"
    assert "3" in Words("zh")("{count} keys", count=3)
