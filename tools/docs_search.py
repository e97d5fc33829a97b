"""The documentation as one page with a search: `make docs` writes dist/docs.html. It needs no server and asks no other one.

Each section of a page is folded under its heading; the search shows those that hold all words, the ones with a word in their
heading first. Links between pages lead to sections of this page. Without its script it is a table of contents that unfolds.
"""

import functools
import html
import pathlib
import re
from dataclasses import dataclass
from urllib.parse import unquote

from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = ROOT / "dist/docs.html"
# The pages for users come before those for developers, and the decisions last.
FIRST = ("README.md", "docs/first-steps.md", "docs/command.md", "docs/console.md")
LAST = "docs/adr/"
SHOWN_COUNT_MAX = 50
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_LINK = re.compile(r'href="([^"#:]*)(#[^"]*)?"')
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_PICTURE_OF_THEME = re.compile(r'<picture>.*?alt="([^"]*)".*?</picture>', re.DOTALL)
_PICTURE = re.compile(r'<img src="[^"]*" alt="([^"]*)"[^>]*>')


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page under one heading: its page, its heading, the name that links have for it, and its text as HTML."""

    page: str
    heading: str
    name: str
    body: str


def pages() -> list[pathlib.Path]:
    """All pages, in the order in which they are shown."""
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md", "CHANGELOG.md")]
    found += sorted((ROOT / "docs").rglob("*.md"))

    def order(path: pathlib.Path) -> tuple[int, int, str]:
        name = str(path.relative_to(ROOT))
        return FIRST.index(name) if name in FIRST else len(FIRST), name.startswith(LAST), name

    return sorted((path for path in found if "node_modules" not in path.parts), key=order)


@functools.cache
def _known() -> frozenset[pathlib.Path]:
    return frozenset(pages())


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading: lower case, without punctuation, a dash for each space."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sections_of(name: str, text: str) -> list[Section]:
    """The sections of a page, split at headings of the first two levels."""
    tokens = _MARKDOWN.parse(_PICTURE_OF_THEME.sub(r"*\1*", _COMMENT.sub("", text)))
    starts = [place for place, token in enumerate(tokens) if token.type == "heading_open" and token.tag in ("h1", "h2")]
    found = []
    for begin, end in zip([0, *starts], [*starts, len(tokens)], strict=True):
        part = tokens[begin:end]
        if not part:
            continue
        heading = name
        if part[0].type == "heading_open":
            heading = "".join(child.content for child in part[1].children or () if child.type != "image")
            part = part[3:]
        body = _MARKDOWN.renderer.render(part, _MARKDOWN.options, {})
        # The first section is the page itself.
        section = name if not found else f"{name}#{anchor(heading)}"
        found.append(Section(name, heading.strip(), section, _with_links(name, body)))
    return found


def _with_links(name: str, body: str) -> str:
    """Links to other pages lead to their sections here; pictures are their descriptions."""
    here = (ROOT / name).parent
    known = _known()

    def led(mark: re.Match[str]) -> str:
        path, fragment = html.unescape(unquote(mark[1])), mark[2] or ""
        target = (here / path).resolve() if path else ROOT / name
        page_of_folder = target / "README.md"
        target = page_of_folder if page_of_folder in known else target
        if target in known:
            return f'href="#{target.relative_to(ROOT)}{html.escape(fragment)}"'
        if target.is_relative_to(ROOT):
            return f'href="../{html.escape(str(target.relative_to(ROOT)))}"'
        return mark[0]

    return _LINK.sub(led, _PICTURE.sub(r"<em>\1</em>", body))


def page(sections: list[Section]) -> str:
    """The whole page."""
    parts = [
        f'<details id="{html.escape(each.name)}" data-heading="{html.escape(each.heading)}">'
        f"<summary>{html.escape(each.heading)} <span>{html.escape(each.page)}</span></summary>\n{each.body}</details>"
        for each in sections
    ]
    return TEMPLATE.replace("{sections}", "\n".join(parts)).replace("{most}", str(SHOWN_COUNT_MAX))


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark"><title>Reput: documentation</title>
<style>
body { max-width: 60rem; margin: 0 auto; padding: 1rem; font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
header { position: sticky; inset-block-start: 0; padding-block: 0.5rem; background: Canvas; }
input { box-sizing: border-box; width: 100%; padding: 0.6rem; font: inherit; }
details { border-block-end: 1px solid color-mix(in srgb, CanvasText 15%, Canvas); }
summary { padding-block: 0.4rem; cursor: pointer; font-weight: 600; }
summary span { font-weight: 400; opacity: 0.75; }
pre { overflow-x: auto; padding: 0.7rem; border: 1px solid color-mix(in srgb, CanvasText 20%, Canvas); }
table { display: block; overflow-x: auto; border-collapse: collapse; }
td, th { padding: 0.3rem 0.6rem; border: 1px solid color-mix(in srgb, CanvasText 20%, Canvas); text-align: start; }
</style></head><body>
<header><h1>Reput: documentation</h1>
<label>Search <input type="search" autofocus autocomplete="off" spellcheck="false"></label><p role="status"></p></header>
<main>
{sections}
</main>
<script>
"use strict";
const field = document.querySelector("input");
const said = document.querySelector("[role=status]");
const main = document.querySelector("main");
const all = [...document.querySelectorAll("details")].map((element) => ({
  element,
  heading: element.dataset.heading.toLowerCase(),
  text: element.textContent.toLowerCase(),
}));
const look = () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const score = ({ heading, text }) =>
    words.every((word) => text.includes(word)) ? 1 + words.filter((word) => heading.includes(word)).length : 0;
  const scored = all.map((each, place) => ({ ...each, place, score: score(each) }));
  const found = scored.filter((each) => each.score).sort((one, other) => other.score - one.score || one.place - other.place);
  const shown = words.length ? found.slice(0, {most}) : scored;
  main.replaceChildren(...shown.map((each) => each.element));
  for (const { element } of shown) element.open = words.length > 0 && shown.length <= 3;
  const rest = found.length > shown.length ? `, ${shown.length} shown` : "";
  said.textContent = words.length ? `${found.length} sections${rest}` : "";
};
field.addEventListener("input", look);
const open = () => {
  const name = decodeURIComponent(location.hash.slice(1));
  if (!name) return;
  field.value = "";
  look();
  const target = document.getElementById(name) || document.getElementById(name.split("#")[0]);
  if (!target) return;
  target.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
</script></body></html>
"""


def main() -> None:
    """Write the page."""
    sections = [
        section
        for path in pages()
        for section in sections_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(page(sections), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(sections)} sections")


if __name__ == "__main__":
    main()
