"""Filter: the messages that a search looks for. All given conditions must hold.

    tag code    of the queue unit, before the record is read: rules out messages with other tags
    tags        the tag itself is one of the given ones
    properties  each has the given value, or any value
    needle      the inflated body contains these bytes
    CEL         an expression over the message, evaluated in another process (cel_sandbox.py)

The cheap conditions come first: an expression is evaluated only where all others hold.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.search.message_view import MessageView
from store.errors import InvalidArgumentError, StoreError
from store.format.java_text import java_string_hash

# Far more than a form of the console holds. Each condition is compared with every message.
CONDITION_COUNT_MAX = 64
NEEDLE_BYTES_MAX = 64 * 1024
# Inflated bodies in one request to the evaluating process, which holds them in memory about four times.
CEL_BATCH_COUNT_MAX = 128
CEL_BATCH_BYTES = 1 << 20
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Whether a message matches. `error`: why this is unknown; `cel_error`: why the expression has no value."""

    matches: bool
    error: StoreError | None = None
    cel_error: str = ""


_NO = FilterResult(matches=False)
_YES = FilterResult(matches=True)


class Evaluator(Protocol):
    """Evaluates one expression."""

    needs_body: bool

    def evaluate(self, messages: "list[tuple[MessageView, bytes]]") -> list[bool | str]:
        """A value for each message with its inflated body, in order, or why there is none; fewer when time is over."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a search.

    Attributes:
        tags: the message has one of these; empty: any.
        properties: values by name; None: any value.
        needle: bytes that the body contains; empty: any body.
        cel: an expression; empty: none.

    Raises:
        InvalidArgumentError: there are too many conditions, or the needle is too long.
    """

    tags: frozenset[str] = frozenset()
    properties: Mapping[str, str | None] = field(default_factory=dict)
    needle: bytes = b""
    cel: str = ""

    def __post_init__(self) -> None:
        for name, count in (("tags", len(self.tags)), ("properties", len(self.properties))):
            if count > CONDITION_COUNT_MAX:
                raise InvalidArgumentError(
                    f"{count} {name} are given: at most {CONDITION_COUNT_MAX} are allowed; use `cel` for more.",
                    field=name,
                )
        if "" in self.properties:
            raise InvalidArgumentError("a property has no name: name each property.", field="properties")
        if len(self.needle) > NEEDLE_BYTES_MAX:
            raise InvalidArgumentError(
                f"the needle has {len(self.needle)} bytes: at most {NEEDLE_BYTES_MAX} are allowed.", field="needle"
            )


def hex_needle(text: str) -> bytes:
    """The bytes of hex digits; blanks between bytes are allowed. InvalidArgumentError when the text is not hex."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidArgumentError(f"body_hex is not hex: {error}.", field="body_hex") from error


class MessageFilter:
    """Decides which messages match.

    Args:
        conditions: of the search.
        evaluator: evaluates their expression; None when they have none.
    """

    def __init__(self, conditions: Conditions, evaluator: Evaluator | None) -> None:
        self._conditions = conditions
        self._evaluator = evaluator
        self._tag_codes = frozenset(java_string_hash(tag) for tag in conditions.tags)

    def rules_out(self, tags_code: int) -> bool:
        """Whether a queue unit's tag code says that its message has other tags.

        A code outside Java's int is not a tag code: it is the deliver time of a delayed message, or an address in
        RocketMQ's ConsumeQueueExt.
        """
        if not self._tag_codes or not _INT_MIN <= tags_code <= _INT_MAX:
            return False
        return tags_code not in self._tag_codes

    def decide(self, views: Iterable[MessageView], gives_up: Callable[[], bool]) -> Iterator[FilterResult]:
        """The result of each message, in order; when the time is over, only those so far, at least one.

        Args:
            views: the messages.
            gives_up: whether to stop; called before each message but the first.
        """
        if self._evaluator is None:
            for number, view in enumerate(views):
                if number and gives_up():
                    return
                yield self._before_cel(view)[0]
            return
        batch: list[tuple[FilterResult, MessageView, bytes]] = []
        size_bytes = 0
        for number, view in enumerate(views):
            if number and gives_up():
                break
            result, body, inflated_bytes = self._before_cel(view)
            batch.append((result, view, body))
            size_bytes += inflated_bytes
            if len(batch) >= CEL_BATCH_COUNT_MAX or size_bytes >= CEL_BATCH_BYTES:
                decided = list(self._with_cel(self._evaluator, batch))
                yield from decided
                if len(decided) < len(batch):
                    return
                batch, size_bytes = [], 0
        yield from self._with_cel(self._evaluator, batch)

    def _with_cel(
        self, evaluator: Evaluator, batch: list[tuple[FilterResult, MessageView, bytes]]
    ) -> Iterator[FilterResult]:
        asked = [(view, body) for result, view, body in batch if result.matches]
        values = iter(evaluator.evaluate(asked) if asked else ())
        for result, _, _ in batch:
            if not result.matches:
                yield result
                continue
            value = next(values, None)
            if value is None:
                return
            if isinstance(value, str):
                yield FilterResult(matches=False, cel_error=value)
            else:
                yield _YES if value else _NO

    def _before_cel(self, view: MessageView) -> tuple[FilterResult, bytes, int]:
        """The result without the expression, the body if the expression needs it, and the number of inflated bytes."""
        conditions = self._conditions
        if conditions.tags and view.tags not in conditions.tags:
            return _NO, b"", 0
        for name, value in conditions.properties.items():
            if name not in view.properties or value not in (None, view.properties[name]):
                return _NO, b"", 0
        needs_body = self._evaluator is not None and self._evaluator.needs_body
        if not conditions.needle and not needs_body:
            return _YES, b"", 0
        try:
            body = view.inflated_body()
        except StoreError as error:
            return FilterResult(matches=False, error=error), b"", 0
        if conditions.needle not in body:
            return _NO, b"", len(body)
        return _YES, body if needs_body else b"", len(body)
