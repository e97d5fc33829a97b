"""What a subscription asks for, as a test of messages.

    filter_of_tags("a || b")            messages with the tag a or b
    filter_of_sql("size > 3 AND b IN ('x')")   messages whose properties make it true
    EVERYTHING                          all messages, as for `*`

A message is tested twice. `matches_unit` takes what the queue unit has, so that most others need not be read; `matches` then
decides by the record's properties. Bodies are not looked at. Source: `FilterAPI`, `ExpressionMessageFilter` and
`MessageEvaluationContext`, RocketMQ 5.3.3.

FilterCache: filters by their expressions, the least recently used ones forgotten.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from consumer_svc.filters.sql_expressions import Evaluate, SqlFaultError
from consumer_svc.filters.sql_grammar import parse
from store.errors import IllegalFilterError
from store.format.java_text import java_string_hash

# A filter takes some 100 bytes for each character of its expression, so all of them at most 100 MiB.
CACHED_CHARACTERS_MAX: Final = 1024 * 1024
_ENTRY_CHARACTERS: Final = 256  # what an entry takes however short it is
Filter = TypeVar("Filter")


class FilterCache(Generic[Filter]):
    """Filters that were made, and expressions that were refused.

    Args:
        characters_max: of all expressions that are kept, each counted as 256 more.
    """

    def __init__(self, characters_max: int = CACHED_CHARACTERS_MAX) -> None:
        self._characters_max = characters_max
        self._characters = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], Filter | IllegalFilterError] = OrderedDict()

    def get(self, kind: str, expression: str, make: Callable[[str], Filter]) -> Filter:
        """The filter of an expression, made if it is not known.

        Raises:
            IllegalFilterError: `make` raises it, or did so before.
        """
        key = (kind, expression)
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                self._entries.move_to_end(key)
        if known is None:
            try:
                known = make(expression)
            except IllegalFilterError as error:
                known = error
            self._keep(key, known)
        if isinstance(known, IllegalFilterError):
            raise IllegalFilterError(
                known.message, **known.metadata
            )  # an error has one traceback, its callers are many
        return known

    def _keep(self, key: tuple[str, str], entry: Filter | IllegalFilterError) -> None:
        size = len(key[1]) + _ENTRY_CHARACTERS
        if size > self._characters_max:
            return
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry
                self._characters += size
            while self._characters > self._characters_max:
                (_, expression), _ = self._entries.popitem(last=False)
                self._characters -= len(expression) + _ENTRY_CHARACTERS


# A subscription comes with each receive. Real ones have some hundred characters; this length is parsed in half a second.
EXPRESSION_CHARACTERS_MAX: Final = 32 * 1024
ALL_TAGS: Final = "*"
_TAG_SEPARATOR: Final = "||"
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))  # what `String.trim` removes
_QUOTED_CHARACTERS_MAX: Final = 40  # of the expression, in the text of an error
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class MessageFilter(Protocol):
    """Decides which messages a consumer gets."""

    def matches_unit(self, tags_code: int) -> bool:
        """Whether a message may match: true too often, never false for a match.

        Args:
            tags_code: of its queue unit.
        """

    def matches(self, tags: str, properties: Mapping[str, str]) -> bool:
        """Whether a message matches.

        Args:
            tags: its TAGS, empty if it has none.
            properties: all properties of its record, TAGS included.
        """


class _Everything:
    def matches_unit(self, tags_code: int) -> bool:
        return True

    def matches(self, tags: str, properties: Mapping[str, str]) -> bool:
        return True


EVERYTHING: Final[MessageFilter] = _Everything()


class _TagFilter:
    def __init__(self, tags: frozenset[str]) -> None:
        self._tags = tags
        self._codes = frozenset(map(java_string_hash, tags))

    def matches_unit(self, tags_code: int) -> bool:
        # A code that is no hash is the delivery time of a delayed message, or where the unit goes on in consumequeue_ext.
        return tags_code in self._codes or not _INT_MIN <= tags_code <= _INT_MAX

    def matches(self, tags: str, properties: Mapping[str, str]) -> bool:
        return tags in self._tags


class _SqlFilter:
    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate

    def matches_unit(self, tags_code: int) -> bool:
        return True

    def matches(self, tags: str, properties: Mapping[str, str]) -> bool:
        try:
            return self._evaluate(properties) is True
        except ValueError:  # a property is compared with a number and is none
            return False


def filter_of_tags(expression: str) -> MessageFilter:
    """Of tags separated by `||`, with or without blanks around them; nothing, blanks and `*` mean all messages.

    RocketMQ takes blanks, and `*` with blanks around it, for tags that no message has. It also takes `a | b` for one tag:
    RocketMQ's contract forbids a `|` in a tag, so such a filter would never match, and is refused (ADR 0049).

    Raises:
        IllegalFilterError: it is too long, has a `||` and no tag, or has a single `|`.
    """
    return _cache.get("TAG", expression, _new_tag_filter)


def filter_of_sql(expression: str) -> MessageFilter:
    """Of an SQL92 expression over properties; `sql_grammar` says which.

    Raises:
        IllegalFilterError: it is too long, or no such expression; metadata has `column`, counted from 1.
    """
    return _cache.get("SQL92", expression, _new_sql_filter)


def _new_tag_filter(expression: str) -> MessageFilter:
    _check_length(expression)
    if expression.strip(_JAVA_BLANKS) in ("", ALL_TAGS):
        return EVERYTHING
    tags = frozenset(tag for part in expression.split(_TAG_SEPARATOR) if (tag := part.strip(_JAVA_BLANKS)))
    if not tags:
        raise IllegalFilterError(
            f"The tag filter {expression[:_QUOTED_CHARACTERS_MAX]!r} names no tag: write one on a side of ||, or * for all.",
            expression=expression,
        )
    if split := next((tag for tag in sorted(tags) if "|" in tag), None):
        raise IllegalFilterError(
            f"The tag filter has a single | in {split[:_QUOTED_CHARACTERS_MAX]!r}, and no tag holds one: "
            "write || between tags.",
            expression=expression[:_QUOTED_CHARACTERS_MAX],
        )
    return _TagFilter(tags)


def _new_sql_filter(expression: str) -> MessageFilter:
    _check_length(expression)
    try:
        return _SqlFilter(parse(expression))
    except SqlFaultError as fault:
        rest = expression[fault.at :]
        where = f", at {rest[:_QUOTED_CHARACTERS_MAX]!r}" if rest else ""
        raise IllegalFilterError(
            f"The SQL filter is wrong in column {fault.at + 1}{where}: {fault.what}.",
            expression=expression,
            column=fault.at + 1,
        ) from None


def _check_length(expression: str) -> None:
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise IllegalFilterError(
            f"The filter has {len(expression)} characters, more than {EXPRESSION_CHARACTERS_MAX}: make it shorter.",
            expression=expression[:_QUOTED_CHARACTERS_MAX],
        )


_cache: Final = FilterCache[MessageFilter]()
