"""RocketMQ's expression of tags: `TagA || TagB`, or `*` for all.

As its consumers read it (`FilterAPI.buildSubscriptionData`): blanks around a tag do not count, empty parts are left out, and
a `*` beside others is a tag of that name.
"""

from store.errors import InvalidArgumentError

ALL_TAGS = "*"
# As many as a search takes.
TAG_COUNT_MAX = 64


def parse_tags(text: str, field: str) -> tuple[str, ...]:
    """The tags, each once; empty when all are meant; InvalidArgumentError when there is none, or too many."""
    if text.strip() in ("", ALL_TAGS):
        return ()
    tags = tuple(dict.fromkeys(tag for part in text.split("||") if (tag := part.strip())))
    if not tags or len(tags) > TAG_COUNT_MAX:
        raise InvalidArgumentError(
            f"{field} is {text[:200]!r}: TagA || TagB, with at most {TAG_COUNT_MAX} tags, or * for all is needed.",
            field=field,
        )
    return tags
