"""Renders templates to bytes; all values are escaped."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from console.parts import formats
from console.parts.formats import error_text, track_state
from console.parts.message_row import message_href, queue_href, topic_href, topic_kind
from console.words import HTML_LANGUAGES, LANGUAGES, Words

ROOT = Path(__file__).parent
THEMES = ("auto", "light", "dark")
STATIC_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Renderer:
    """Renders pages; thread-safe."""

    def __init__(self) -> None:
        self.static = _static()
        self._environment = _environment()

    def render(self, template: str, values: Mapping[str, Any], words: Words, frame: Mapping[str, Any]) -> bytes:
        """A page in a language; `frame` has the values of the layout around it."""
        text = self._environment.get_template(template).render(
            **frame, **values, t=words, language=words.language, html_language=HTML_LANGUAGES[words.language]
        )
        return text.encode("utf-8", "replace")


@cache
def _static() -> dict[str, bytes]:
    return {name: (ROOT / "static" / name).read_bytes() for name in STATIC_TYPES}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(ROOT / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        time=formats.time_text,
        time_attribute=formats.time_attribute,
        size=formats.size_text,
        count=formats.count_text,
        duration=formats.duration_text,
        visible=formats.visible,
        visible_lines=formats.visible_lines,
        shortened=formats.shortened,
        middle_cut=formats.middle_cut,
        path=lambda text: quote(text, safe=""),
    )
    environment.globals.update(
        error_text=error_text,
        message_href=message_href,
        queue_href=queue_href,
        topic_href=topic_href,
        topic_kind=topic_kind,
        track_state=track_state,
        languages=LANGUAGES,
        themes=THEMES,
        static_hrefs={name: f"/static/{name}?v={_digest(content)}" for name, content in _static().items()},
    )
    return environment


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
