"""CEL over a message: the fields that an expression may use, and its value. Runs only in the evaluating process.

message.topic, tags, unique_key, born_host, store_host                      string
message.keys                                                                list of strings
message.properties                                                          map of strings
message.queue_id, queue_offset, commit_log_offset, store_size_bytes,
        flag, sys_flag, reconsume_times, born_time_millis, store_time_millis  int
message.born_time, store_time                                               timestamp
message.body                                                                bytes, inflated
message.body_text                                                           string: the body read as UTF-8, U+FFFD for
                                                                            invalid bytes
"""

import datetime
import re
from typing import Any

import cel

TEXTS = ("topic", "tags", "unique_key", "born_host", "store_host")
NUMBERS = ("queue_id", "queue_offset", "commit_log_offset", "store_size_bytes", "flag", "sys_flag", "reconsume_times")
TIMES = ("born_time", "store_time")
TIMES_MILLIS = tuple(f"{name}_millis" for name in TIMES)
FIELDS = frozenset((*TEXTS, *NUMBERS, *TIMES, *TIMES_MILLIS, "keys", "properties", "body", "body_text"))
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
# The end of CEL's timestamps, 9999-12-31T23:59:59.999Z.
_TIME_MILLIS_MAX = 253_402_300_799_999
# Strings and comments, which hold no names. They are replaced by blanks of the same length, so positions stay the same.
_NO_NAMES = re.compile(
    r'''[rR]?[bB]?[rR]?("""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*'''
)
_BOUND = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*([A-Za-z_]\w*)\s*,")
_FIELD = re.compile(r"(?<![\w.])message\s*\.\s*([A-Za-z_]\w*)(?!\w|\s*\()")
_POSITION = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_UNKNOWN = "Undefined variable or function: "


class CelFaultError(Exception):
    """The expression is not valid for any message.

    Args:
        what: the reason, as the rest of a sentence.
        line: the line of the fault, from 1; 0 when unknown.
        column: the column of the fault, from 1; 0 when unknown.
    """

    def __init__(self, what: str, line: int = 0, column: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column


class CelProgram:
    """A compiled expression.

    Raises:
        CelFaultError: it is not valid CEL, or uses an unknown name.
    """

    def __init__(self, expression: str) -> None:
        try:
            self._program = cel.compile(expression)
        except ValueError as error:
            raise _syntax_fault(str(error)) from error
        masked = _NO_NAMES.sub(lambda found: " " * len(found.group()), expression)
        self._check_names(masked)
        self.value_of(example(), b"")

    def value_of(self, fields: dict[str, Any], body: bytes) -> bool | str:
        """The value for one message, or the reason why there is none.

        Raises:
            CelFaultError: the expression has no value for any message.
        """
        try:
            value = self._program.execute({"message": _seen(fields, body)})
        except MemoryError:
            raise
        except KeyError as error:
            return f"there is no key {error}"
        except Exception as error:  # any error of an expression is an answer about this expression
            if str(error).startswith(_UNKNOWN):
                name = str(error).removeprefix(_UNKNOWN).split(".", maxsplit=1)[0]
                raise CelFaultError(f"there is no function {name} for arguments of these types") from error
            return str(error)
        if not isinstance(value, bool):
            raise CelFaultError(f"its value is of type {type(value).__name__}: it must be bool")
        return value

    def _check_names(self, masked: str) -> None:
        variables = set(self._program.variables()) - {"message"} - set(_BOUND.findall(masked))
        for name in sorted(variables):
            found = re.search(rf"(?<![\w.]){re.escape(name)}\b", masked)
            raise _fault_at(f"there is no {name!r}: all names begin with `message.`", masked, found)
        for found in _FIELD.finditer(masked):
            if found.group(1) not in FIELDS:
                raise _fault_at(
                    f"a message has no {found.group(1)!r}; it has {', '.join(sorted(FIELDS))}", masked, found, 1
                )


def example() -> dict[str, Any]:
    """An example message: evaluating it finds an expression whose value is not a bool, or that does not end."""
    return {**dict.fromkeys(TEXTS, ""), **dict.fromkeys((*NUMBERS, *TIMES_MILLIS), 0), "keys": [], "properties": {}}


def _seen(fields: dict[str, Any], body: bytes) -> dict[str, Any]:
    return {
        **fields,
        "born_time": _timestamp(fields["born_time_millis"]),
        "store_time": _timestamp(fields["store_time_millis"]),
        "body": body,
        "body_text": body.decode("utf-8", "replace"),
    }


def _timestamp(time_millis: int) -> datetime.datetime | None:
    """The time; None outside 1970 to 9999, which stores of other programs may hold."""
    if not 0 <= time_millis <= _TIME_MILLIS_MAX:
        return None
    return _EPOCH + datetime.timedelta(milliseconds=time_millis)


def _syntax_fault(text: str) -> CelFaultError:
    found = _POSITION.search(text)
    if found is None:
        return CelFaultError(text)
    line, column, what = found.groups()
    return CelFaultError(what, int(line), int(column))


def _fault_at(what: str, masked: str, found: re.Match[str] | None, group: int = 0) -> CelFaultError:
    if found is None:
        return CelFaultError(what)
    before = masked[: found.start(group)]
    return CelFaultError(what, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
