"""The texts of the page: English in the code, Chinese by catalog. A test fails for a text without a translation."""

from collections.abc import Mapping

from pipeline.analytics.texts.zh import CHINESE

ENGLISH, ZH = "en", "zh"
LANGUAGES = {ENGLISH: "English", ZH: "中文"}
HTML_LANGUAGES = {ENGLISH: "en", ZH: "zh-CN"}
PAGE_NAMES = {ENGLISH: "report.html", ZH: "report.zh.html"}
_CATALOGS: Mapping[str, Mapping[str, str]] = {ENGLISH: {}, ZH: CHINESE}


class Texts:
    """The texts of one language.

    Args:
        language: one of `LANGUAGES`.
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self.language = language
        self._catalog = _CATALOGS[language]

    def __call__(self, text: str, **values: object) -> str:
        """A text, with `{name}` replaced by values; not escaped."""
        translated = self._catalog.get(text, text)
        return translated.format(**values) if values else translated
