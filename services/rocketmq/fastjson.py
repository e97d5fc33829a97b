"""JSON as fastjson, RocketMQ's library, writes and reads it.

It differs from JSON in the keys of objects:

    {0:"127.0.0.1:10911"}                                          numbers that are keys have no quotes
    {{"brokerName":"b","queueId":0,"topic":"t"}:{"offset":7}}       objects may be keys

Java's tools read both, and write them. In Python a key is a text, a number, or a `Key`, which stands for an object.
Sources: bodies of RocketMQ 5.3.3 and of its clients 4.9.8 and 5.3.3 (`RemotingSerializable`).
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from store.format.config_json import with_quoted_keys

DEPTH_MAX = 64
# Only objects that are keys need a reader in Python, which takes about a microsecond a character.
LOOSE_CHARACTERS_MAX = 1 << 20

_SPACE = re.compile(r"[ \t\r\n]*")
_BARE_NUMBER = re.compile(r"-?\d+")
_SCALARS = frozenset((str, int, bool, float, type(None)))
_decoder = json.JSONDecoder()


class Key(tuple[tuple[str, Any], ...]):
    """An object that is a key: its names and values, in their order."""

    __slots__ = ()

    def __hash__(self) -> int:
        """Of its texts: the hash of a number can be foreseen, and keys of one hash make a table slow."""
        return hash(tuple((name, repr(value)) for name, value in self))

    @classmethod
    def of(cls, **members: object) -> "Key":
        """The key with these members."""
        return cls(members.items())

    def members(self) -> dict[str, Any]:
        """Its names and values."""
        return dict(self)


def dumps(value: object, *, bare: bool = True) -> str:
    """The text of a value.

    Args:
        value: of dictionaries, lists, texts, numbers, booleans and None.
        bare: numbers that are keys have no quotes; False: strict JSON, which has no objects as keys.
    """
    if _is_plain(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key, bare)}:{dumps(each, bare=bare)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([dumps(each, bare=bare) for each in value]) + "]"
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: object) -> bool:
    """Whether it is written as JSON is, as far as a look at its members can tell: one call for it, not one for each."""
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(type(each) in _SCALARS for each in value.values())
    return type(value) is list and all(type(each) in _SCALARS for each in value)


def dump_bytes(value: object, *, bare: bool = True) -> bytes:
    """The bytes of a value; see `dumps`."""
    return dumps(value, bare=bare).encode("utf-8", "replace")


def _key(key: object, bare: bool) -> str:
    if isinstance(key, Key):
        if not bare:
            raise ValueError("strict JSON has no objects as keys")
        return dumps(key.members())
    if isinstance(key, int):
        return str(key) if bare else f'"{key}"'
    return json.dumps(str(key), ensure_ascii=False)


def loads(data: bytes | str) -> Any:
    """The value of a text, strict JSON or not.

    Numbers that are keys become texts, as strict JSON has them; objects that are keys become `Key`.

    Raises:
        ValueError: it is no such text, it nests too deep, or it has objects as keys and more than LOOSE_CHARACTERS_MAX.
    """
    text = data if isinstance(data, str) else data.decode()
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    except ValueError:
        pass
    try:
        return json.loads(with_quoted_keys(text))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    except ValueError:
        if len(text) > LOOSE_CHARACTERS_MAX:
            raise
    value, at = _value(text, _skip(text, 0), 0)
    if _skip(text, at) != len(text):
        raise ValueError(f"there is more behind the value, at {at}")
    return value


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > DEPTH_MAX:
        raise ValueError("it nests too deep")
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _list(text, at, depth)
    return _decoder.raw_decode(text, at)


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _value(text, at, depth + 1)
        values.append(value)
        at = _next(text, at, "]")
    return values, at + 1


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    members: dict[Any, Any] = {}
    key: Any
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        number = _BARE_NUMBER.match(text, at)
        if number:
            key, at = number.group(), number.end()
        else:
            key, at = _value(text, at, depth + 1)
            if isinstance(key, dict):
                key = _as_key(key)
            elif not isinstance(key, str):
                raise ValueError(f"a key that is neither text, number nor object, before {at}")
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"a key without a value, at {at}")
        members[key], at = _value(text, _skip(text, at + 1), depth + 1)
        at = _next(text, at, "}")
    return members, at + 1


def _as_key(members: dict[Any, Any]) -> Key:
    key = Key(members.items())
    if any(isinstance(value, (dict, list)) for value in members.values()):
        raise ValueError("a key that is an object holds a list or an object")
    return key


def _next(text: str, at: int, end: str) -> int:
    """Where the next member or the end of a list or object is."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != end:
        raise ValueError(f"neither a comma nor {end} at {at}")
    return at
