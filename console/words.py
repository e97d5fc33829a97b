"""The console's words: English in the templates, other languages by catalog.

A text without a translation is shown in English; a test fails for such a text. Texts of the gateway (errors, states) are not
translated, so that they can be searched for.
"""

import re
from collections.abc import Mapping

from console.words_zh import CHINESE

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "zh": "中文"}
HTML_LANGUAGES = {ENGLISH: "en", "zh": "zh-CN"}
_CATALOGS: Mapping[str, Mapping[str, str]] = {ENGLISH: {}, "zh": CHINESE}
_ACCEPTED = re.compile(r"([A-Za-z]{1,8})(?:-[A-Za-z0-9-]{1,32})?\s*(?:;\s*q=([0-9.]{1,5}))?")


class Words:
    """The texts of one language.

    Args:
        language: one of `LANGUAGES`.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._catalog = _CATALOGS[language]

    def __call__(self, text: str, **values: object) -> str:
        """A text, with `{name}` replaced by values."""
        translated = self._catalog.get(text, text)
        return translated.format(**values) if values else translated


def language_of(cookie: str, accept_language: str) -> str:
    """The language that the reader chose, otherwise the browser's first language that the console has."""
    if cookie in LANGUAGES:
        return cookie
    wanted: list[tuple[float, int, str]] = []
    for number, part in enumerate(accept_language[:512].split(",")):
        matched = _ACCEPTED.fullmatch(part.strip())
        if matched and matched[1].lower() in LANGUAGES:
            try:
                weight = float(matched[2] or 1)
            except ValueError:
                weight = 0.0
            wanted.append((-weight, number, matched[1].lower()))
    return min(wanted)[2] if wanted else ENGLISH
