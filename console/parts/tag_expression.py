"""RocketMQ's expression of tags: `TagA || TagB`, or `*` for all.

It is parsed as by RocketMQ's consumers (`FilterAPI.buildSubscriptionData`): blanks around a tag are removed, empty parts are
left out, and `*` beside other tags is a tag with this name.
"""

from store.errors import InvalidArgumentError

ALL_TAGS = "*"
# The limit of a search.
TAG_COUNT_MAX = 64


def parse_tags(text: str, field: str) -> tuple[str, ...]:
    """The tags, each once; empty for all tags. InvalidArgumentError when there is no tag, or too many."""
    if text.strip() in ("", ALL_TAGS):
        return ()
    tags = tuple(dict.fromkeys(tag for part in text.split("||") if (tag := part.strip())))
    if not tags or len(tags) > TAG_COUNT_MAX:
        raise InvalidArgumentError(
            f"{field} is {text[:200]!r}: TagA || TagB, with at most {TAG_COUNT_MAX} tags, or * for all is needed.",
            field=field,
        )
    return tags
