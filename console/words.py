"""The console's words: English in the templates, other languages by catalog.

A text without a translation is shown in English; a test fails for such a text. An error of the gateway is explained by its
reason, and its own text stays beside the explanation, so that it can be searched for. A problem of a service is explained by
its state in the same way. Other texts that come in English are translated by their patterns.

An English text has both forms of what is counted: `{count} {count:key|keys}` is `1 key` and `2 keys`.
"""

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

from console.words_zh import CHINESE, ERRORS, PATTERNS, PROBLEM, PROBLEMS_BY_STATE, STATES

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "zh": "中文"}
HTML_LANGUAGES = {ENGLISH: "en", "zh": "zh-CN"}
_CATALOGS: Mapping[str, Mapping[str, str]] = {ENGLISH: {}, "zh": CHINESE}
_ERRORS: Mapping[str, Mapping[str, str]] = {ENGLISH: {}, "zh": ERRORS}
_ONE_OR_MORE = re.compile(r"\{(\w+):([^{}|]*)\|([^{}|]*)\}")
_ACCEPTED = re.compile(r"([A-Za-z]{1,8})(?:-[A-Za-z0-9-]{1,32})?\s*(?:;\s*q=([0-9.]{1,5}))?")


class Words:
    """The texts of one language.

    Args:
        language: one of `LANGUAGES`.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._catalog = _CATALOGS[language]
        self._errors = _ERRORS[language]

    def __call__(self, text: str, **values: object) -> str:
        """A text, with `{name}` replaced by values; one with HTML among them (`Markup`) is HTML."""
        translated = self._catalog.get(text, text)
        translated = _ONE_OR_MORE.sub(lambda form: form[2] if str(values[form[1]]) == "1" else form[3], translated)
        if any(isinstance(value, Markup) for value in values.values()):
            return escape(translated).format(**values)
        return translated.format(**values) if values else translated

    def reason(self, reason: str) -> str:
        """The explanation of a reason of an error; empty in English, where the error's own text explains it."""
        return self._errors.get(reason, "")

    def state(self, word: str) -> str:
        """The state of a service or a disk, which comes as an English word."""
        return word if self.language == ENGLISH else STATES.get(word, word)

    def from_english(self, text: str) -> str:
        """A text that came in English from a service, a reader of bodies or a report; unchanged when no pattern fits."""
        return text if self.language == ENGLISH else _translated(text) or text

    def problem(self, state: str, text: str) -> str:
        """The problem of a service in that state: what it means, and its own text."""
        if self.language == ENGLISH:
            return text
        return _translated(text) or f"{PROBLEMS_BY_STATE.get(state, PROBLEM)}（{text}）"


def _translated(text: str) -> str:
    """The Chinese of a text that came in English; empty when no pattern fits."""
    for pattern, chinese in PATTERNS:
        if matched := pattern.fullmatch(text):
            return chinese.format(*matched.groups())
    return ""


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
