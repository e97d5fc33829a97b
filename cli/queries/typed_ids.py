"""Ids and keys as people type or paste them: with blanks or quotes around them, or in lower case."""

import re

QUOTES = (("'", "'"), ('"', '"'), ("`", "`"), ("‘", "’"), ("“", "”"), ("«", "»"), ("「", "」"))
# Unique keys that RocketMQ's clients make, and offsetMsgIds, have these many hex digits, in upper case.
_LOWER_ID = re.compile(r"(?=.*[a-f])[0-9a-f]+")
_ID_LENGTHS = (32, 34, 56)
OFFSET_MSG_ID_LENGTHS = (32, 56)


def typed_id(text: str) -> str:
    """The id or key without the blanks and the quotes around it."""
    text = text.strip()
    for opening, closing in QUOTES:
        if len(text) > 2 and text[0] == opening and text[-1] == closing:
            return typed_id(text[1:-1])
    return text


def typed_ids(text: str) -> list[str]:
    """The ids of a list with commas, each once."""
    return list(dict.fromkeys(found for part in typed_id(text).split(",") if (found := typed_id(part))))


def forms_of(text: str) -> list[str]:
    """What an id or key may be, the likeliest first: as it was typed, without quotes around it, in upper case."""
    bare = typed_id(text)
    upper = [bare.upper()] if len(bare) in _ID_LENGTHS and _LOWER_ID.fullmatch(bare) else []
    return list(dict.fromkeys([text.strip() or text, bare, *upper]))


def is_offset_msg_id(text: str) -> bool:
    """Whether the text may be an offsetMsgId."""
    return len(text) in OFFSET_MSG_ID_LENGTHS and re.fullmatch(r"[0-9A-Fa-f]+", text) is not None


def why_no_key(text: str) -> str:
    """Why no message can have this key; empty when one can."""
    if " " not in text:
        return ""
    return f"a key cannot hold a space, because spaces separate the keys of a message: ask for one of {text.split()}"
