"""Conditions of a search as a person types them, as the gateway takes them."""

import json
import re
from collections.abc import Sequence


def property_pairs(typed: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """Names and values of `NAME=VALUE`; None for the value of a plain `NAME`, which any value fits."""
    parts = [each.partition("=") for each in typed or ()]
    return [(name, value if equals else None) for name, equals, value in parts]


def body_ignoring_case(text: str) -> str:
    """CEL: the body holds this text, upper and lower case being the same."""
    return f"message.body_text.matches({_cel_text('(?is)' + re.escape(text))})"


def has_key(key: str) -> str:
    """CEL: this is one of the message's keys."""
    return f"{_cel_text(key)} in message.keys"


def both(*conditions: str) -> str:
    """CEL: all of these hold; empty ones are left out."""
    given = [each for each in conditions if each]
    return given[0] if len(given) == 1 else " && ".join(f"({each})" for each in given)


def _cel_text(text: str) -> str:
    """A text as CEL writes it: its escapes are a superset of JSON's."""
    return json.dumps(text, ensure_ascii=False)
