"""The documentation as one page: nothing is left out, links lead on, and nothing in a page runs."""

import re

from tools import docs_search
from tools.docs_search import anchor, page, pages, sections_of

TEXT = """# Title

Before. [other](command.md#forms-of-an-answer), [here](#two-words), [code](../cli/top.py), [away](https://x.org/a.md#b)

## Two words: `code` & more

![a picture](pictures/x.png) <script>alert(1)</script> <!-- include x.py -->

<picture>
  <source srcset="d.png">
  <img src="l.png" alt="by theme">
</picture>

### Third level

text
"""


def test_a_page_is_split_at_headings_of_two_levels() -> None:
    sections = sections_of("docs/console.md", TEXT)

    assert [(each.heading, each.name) for each in sections] == [
        ("Title", "docs/console.md"),
        ("Two words: code & more", "docs/console.md#two-words-code--more"),
    ]
    assert "Third level" in sections[1].body


def test_links_lead_to_sections_of_the_same_page() -> None:
    first, _ = sections_of("docs/console.md", TEXT)

    assert re.findall('href="([^"]*)"', first.body) == [
        "#docs/command.md#forms-of-an-answer",
        "#docs/console.md#two-words",
        "../cli/top.py",
        "https://x.org/a.md#b",
    ]


def test_a_picture_is_its_description_and_html_is_text() -> None:
    _, second = sections_of("docs/console.md", TEXT)

    assert "<em>a picture</em>" in second.body
    assert "<em>by theme</em>" in second.body
    assert "include" not in second.body
    assert "<script>" not in second.body


def test_a_heading_has_the_anchor_that_github_gives_it() -> None:
    assert anchor("Topics, messages as they come, explanations") == "topics-messages-as-they-come-explanations"
    assert anchor("Wo liegt `reput.toml`?") == "wo-liegt-reputtoml"


def test_every_page_is_there_and_every_link_between_them_leads_to_a_page() -> None:
    made = [
        section
        for path in pages()
        for section in sections_of(str(path.relative_to(docs_search.ROOT)), path.read_text(encoding="utf-8"))
    ]
    names = {each.name for each in made}

    assert {str(path.relative_to(docs_search.ROOT)) for path in pages()} <= names
    assert pages()[0].name == "README.md"
    linked = {link.partition("#")[0] for each in made for link in re.findall('href="#([^"]*)"', each.body)}
    assert {link for link in linked if link not in names} == set()
    whole = page(made)
    assert whole.count("<details id=") == len(made)
    assert 'src="' not in whole  # nothing is fetched
