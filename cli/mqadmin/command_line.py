"""Command lines as mqadmin reads them: the rules of commons-cli's DefaultParser, which mqadmin uses.

    -t T   -tT   -t=T   --topic T   --topic=T   -topic T   -topic=T   --top T (the begin of a name, when one flag has it)

Blanks and double quotes around a value are taken away. A value may begin with `-`: `-s -1`. With `-o` a name of an output
format sets the output, whatever else `-o` is for. The lines are rewritten to the form `--topic=T`, which typer's parser reads.
What fits no flag goes on as it is: that parser says what is wrong.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperCommand

from cli.options import OutputFormat

# Begins the names of parameters that are only there to be accepted (`cli.mqadmin.flags`).
NO_EFFECT_PREFIX = "no_effect_"


class MqadminCommand(TyperCommand):
    """A verb of mqadmin."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See the top of this file."""
        try:
            lines = list(Rewriting(self.get_params(ctx)).lines(args))
        except ValueError as error:
            ctx.fail(str(error))
        return super().parse_args(ctx, lines)


class Rewriting:
    """Rewrites lines for a verb with these parameters.

    Args:
        params: of the verb, as typer has them.
    """

    def __init__(self, params: Sequence[Any]) -> None:
        self._params = [each for each in params if each.param_type_name == "option"]
        self._by_name = {name: each for each in self._params for name in each.opts}

    def lines(self, args: Sequence[str]) -> Iterator[str]:
        """The arguments in the form `--name=value`.

        Raises:
            ValueError: a flag has two values.
        """
        left = list(args)
        given: dict[str, str] = {}
        while left:
            token = left.pop(0)
            if token == "--":  # noqa: S105  # a token of a command line
                yield from (token, *left)
                return
            param, value, rest = self._read(token)
            if param is None:
                yield token
                continue
            if rest:  # flags without values in one token: -ah
                left.insert(0, rest)
            if param.is_flag:
                yield _name_of(param)
                continue
            if value is None and left and not (param.name.startswith(NO_EFFECT_PREFIX) and self._read(left[0])[0]):
                value = left.pop(0)
            if value is None:
                # What has no effect needs no value: mqadmin 5.3 had `-c` of resetOffsetByTime without one.
                yield f"{_name_of(param)}=" if param.name.startswith(NO_EFFECT_PREFIX) else token
                continue
            value = trimmed(value)
            if "-o" in param.opts and not token.startswith("--") and value in list(OutputFormat):
                param = self._by_name["--output"]
            if not param.multiple and given.setdefault(param.name, value) != value:
                raise ValueError(f"{_name_of(param)} is given twice: {given[param.name]} and {value}")
            yield f"{_name_of(param)}={value}"

    def _read(self, token: str) -> tuple[Any, str | None, str]:
        """The parameter that a token names, its value if the token holds it, and a token that is left; None: it names none."""
        body, given = token.lstrip("-"), None
        if token.startswith("--"):
            name, equals, text = body.partition("=")
            return self._long(name), text if equals else None, ""
        if not token.startswith("-") or not body or token.startswith("---"):
            return None, None, ""
        name, equals, text = body.partition("=")
        given = text if equals else None
        if len(name) == 1:
            return self._by_name.get(f"-{name}"), given, ""
        if (param := self._long(name)) is not None:
            return param, given, ""
        if not equals:
            for end in range(len(body) - 1, 1, -1):  # -topicT
                if (param := self._by_name.get(f"--{body[:end]}")) is not None and not param.is_flag:
                    return param, body[end:], ""
        param = self._by_name.get(f"-{body[0]}")
        if param is None or not param.is_flag:
            return param, body[1:], ""
        return param, None, f"-{body[1:]}"

    def _long(self, name: str) -> Any:
        """The parameter with this long name, or the only one whose long name begins so: mqadmin's flags first."""
        if (exact := self._by_name.get(f"--{name}")) is not None:
            return exact
        for params in ([each for each in self._params if _is_mqadmins(each)], self._params):
            fitting = [each for each in params if any(long.startswith(f"--{name}") for long in each.opts)]
            if len(name) > 1 and len(fitting) == 1:
                return fitting[0]
        return None


def trimmed(value: str) -> str:
    """A value without blanks around it, and without one pair of double quotes, as mqadmin takes it."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == '"' and '"' not in value[1:-1]:
        value = value[1:-1].strip()
    return value


def _name_of(param: Any) -> str:
    """The long name of a parameter."""
    return next(str(name) for name in param.opts if name.startswith("--"))


def _is_mqadmins(param: Any) -> bool:
    return param.name != "output" and any(len(name) == 2 for name in param.opts)
