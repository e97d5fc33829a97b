"""Names the argument behind a TypeError; "bad argument type for built-in operation", as protobuf says, does not."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, Union

Given = ParamSpec("Given")
Result = TypeVar("Result")

_SHOWN_CHARACTERS_MAX = 64  # of a value, in the text of an error


def naming_wrong_arguments(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, whose TypeError or AttributeError names the first argument that is not what its signature says.

    Arguments are looked at after a failure only, so that a call that succeeds costs nothing more.
    """

    @functools.wraps(function)
    def call(*args: Given.args, **named: Given.kwargs) -> Result:
        try:
            return function(*args, **named)
        except (TypeError, AttributeError) as error:
            problem = _wrong_argument(function, args, named)
            if problem is None or str(error).partition(" is ")[0] in inspect.signature(function).parameters:
                raise  # nothing is wrong with the types, or the error names its argument already
            raise TypeError(problem) from error

    return call


def _wrong_argument(function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
    try:
        hints = typing.get_type_hints(function)
        given = inspect.signature(function).bind(*args, **named).arguments
    except (NameError, TypeError):  # a type that is imported for checkers only; too many arguments
        return None
    for name, value in given.items():
        if name in hints and not _fits(value, hints[name]):
            shown = repr(value)
            shown = shown if len(shown) <= _SHOWN_CHARACTERS_MAX else shown[:_SHOWN_CHARACTERS_MAX] + "..."
            return f"{name} is {shown}: give {inspect.formatannotation(hints[name])}"
    return None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; True for annotations that say more than a class or a container of them."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if hint is float:
        return isinstance(value, int | float)
    if isinstance(hint, type):
        return isinstance(value, hint)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin) or (isinstance(value, str) and issubclass(origin, Iterable)):
        return False
    if isinstance(value, Mapping):
        return len(inner) != 2 or all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    return not (isinstance(value, Collection) and inner) or all(_fits(each, inner[0]) for each in value)
