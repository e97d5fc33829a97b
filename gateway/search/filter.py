"""Filter: which messages a search is after. All conditions that are given must hold.

    tag code    of the queue unit, before the record is read: rules out what has other tags
    tags        the text, one of those asked for
    properties  each by name, with its value or whatever value
    needle      bytes that the inflated body holds
    CEL         an expression over the message, evaluated in another process (cel_sandbox.py)

The cheap ones come first: an expression sees only what all others let through.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.search.message_view import MessageView
from store.errors import InvalidArgumentError, StoreError
from store.format.java_hash import java_string_hash

# Many times what a console's form has room for; each is compared with every message.
CONDITION_COUNT_MAX = 64
NEEDLE_BYTES_MAX = 64 * 1024
# What is inflated for the evaluating process at once; there it is in memory about four times.
CEL_BATCH_COUNT_MAX = 128
CEL_BATCH_BYTES = 1 << 20
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a message matches; `error` says why nobody knows, `cel_error` why its expression has no value."""

    matches: bool
    error: StoreError | None = None
    cel_error: str = ""


_NO = Verdict(matches=False)
_YES = Verdict(matches=True)


class Evaluator(Protocol):
    """Evaluates one expression."""

    needs_body: bool

    def evaluate(self, messages: "list[tuple[MessageView, bytes]]") -> list[bool | str]:
        """A value for each message with its inflated body, in order, or why it has none; fewer when time is over."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a search is after.

    Attributes:
        tags: one of these; empty: any.
        properties: values by name, None: whatever value.
        needle: bytes that the body holds; empty: any.
        cel: an expression; empty: none.

    Raises:
        InvalidArgumentError: too many, or a needle that is too long.
    """

    tags: frozenset[str] = frozenset()
    properties: Mapping[str, str | None] = field(default_factory=dict)
    needle: bytes = b""
    cel: str = ""

    def __post_init__(self) -> None:
        for name, count in (("tags", len(self.tags)), ("properties", len(self.properties))):
            if count > CONDITION_COUNT_MAX:
                raise InvalidArgumentError(
                    f"{count} {name} are asked for: at most {CONDITION_COUNT_MAX}; `cel` can say more.", field=name
                )
        if "" in self.properties:
            raise InvalidArgumentError("a property without a name is asked for.", field="properties")
        if len(self.needle) > NEEDLE_BYTES_MAX:
            raise InvalidArgumentError(
                f"the needle has {len(self.needle)} bytes: at most {NEEDLE_BYTES_MAX}.", field="needle"
            )


def hex_needle(text: str) -> bytes:
    """The bytes that hex digits say, blanks between bytes allowed; InvalidArgumentError when they are none."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidArgumentError(f"body_hex is no hex: {error}.", field="body_hex") from error


class MessageFilter:
    """Decides.

    Args:
        conditions: what is asked for.
        evaluator: evaluates its expression; None when it has none.
    """

    def __init__(self, conditions: Conditions, evaluator: Evaluator | None) -> None:
        self._conditions = conditions
        self._evaluator = evaluator
        self._tag_codes = frozenset(java_string_hash(tag) for tag in conditions.tags)

    def rules_out(self, tags_code: int | None) -> bool:
        """Whether a queue unit's tag code says that its message has other tags.

        A code outside Java's int is none: the deliver time of a delayed message, or a place in RocketMQ's ConsumeQueueExt.
        """
        if tags_code is None or not self._tag_codes or not _INT_MIN <= tags_code <= _INT_MAX:
            return False
        return tags_code not in self._tag_codes

    def decide(self, views: Iterable[MessageView], gives_up: Callable[[], bool]) -> Iterator[Verdict]:
        """A verdict for each, in order; fewer, but one at least, when the time for it is over.

        Args:
            views: the messages.
            gives_up: whether to look into no further one; asked before each but the first.
        """
        if self._evaluator is None:
            for number, view in enumerate(views):
                if number and gives_up():
                    return
                yield self._before_cel(view)[0]
            return
        batch: list[tuple[Verdict, MessageView, bytes]] = []
        size_bytes = 0
        for number, view in enumerate(views):
            if number and gives_up():
                break
            verdict, body, inflated_bytes = self._before_cel(view)
            batch.append((verdict, view, body))
            size_bytes += inflated_bytes
            if len(batch) >= CEL_BATCH_COUNT_MAX or size_bytes >= CEL_BATCH_BYTES:
                decided = list(self._with_cel(self._evaluator, batch))
                yield from decided
                if len(decided) < len(batch):
                    return
                batch, size_bytes = [], 0
        yield from self._with_cel(self._evaluator, batch)

    def _with_cel(self, evaluator: Evaluator, batch: list[tuple[Verdict, MessageView, bytes]]) -> Iterator[Verdict]:
        asked = [(view, body) for verdict, view, body in batch if verdict.matches]
        values = iter(evaluator.evaluate(asked) if asked else ())
        for verdict, _, _ in batch:
            if not verdict.matches:
                yield verdict
                continue
            value = next(values, None)
            if value is None:
                return
            if isinstance(value, str):
                yield Verdict(matches=False, cel_error=value)
            else:
                yield _YES if value else _NO

    def _before_cel(self, view: MessageView) -> tuple[Verdict, bytes, int]:
        """What all but the expression say, the body if the expression needs it, and how many bytes were inflated."""
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
            return Verdict(matches=False, error=error), b"", 0
        if conditions.needle not in body:
            return _NO, b"", len(body)
        return _YES, body if needs_body else b"", len(body)
