"""RocketMQ's expression of tags; the cases are those of its FilterAPI and FilterAPITest."""

import pytest

from console.parts.tag_expression import TAG_COUNT_MAX, parse_tags
from store.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("", ()),
        (" ", ()),
        ("*", ()),
        (" * ", ()),
        ("TAG1 || Tag2 || tag3", ("TAG1", "Tag2", "tag3")),
        ("TagA", ("TagA",)),
        ("TagA||TagB", ("TagA", "TagB")),
        ("  TagA  ||  || TagB || TagA ", ("TagA", "TagB")),
        ("* || TagA", ("*", "TagA")),
        ("TagA | TagB", ("TagA | TagB",)),
    ],
)
def test_tags_are_read_as_rocketmq_reads_them(text: str, tags: tuple[str, ...]) -> None:
    assert parse_tags(text, "tag") == tags


@pytest.mark.parametrize("text", ["||", " || || ", " || ".join(f"T{number}" for number in range(TAG_COUNT_MAX + 1))])
def test_no_tag_or_too_many_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        parse_tags(text, "tag")
    assert refused.value.metadata == {"field": "tag"}
