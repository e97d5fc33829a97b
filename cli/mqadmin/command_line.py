"""Command lines as mqadmin reads them: the rules of commons-cli's DefaultParser, which mqadmin uses.

    -t T   -tT   -t=T   --topic T   --topic=T   -topic T   -topic=T   --top T (the begin of a name, when one flag has it)

Blanks and double quotes around a value are taken away. A value may begin with `-`: `-s -1`. With `-o` a name of an output
format sets the output, whatever else `-o` is for. The lines are rewritten to the form `--topic=T`, which typer's parser reads.
What fits no flag goes on as it is: that parser says what is wrong.

Which verbs are mqadmin's, and which of their flags have no effect here, each with the reason.

Every flag that `mqadmin help VERB` of RocketMQ 5.5.0 names is a parameter of the verb, or a row here: then it is accepted, and
a line on stderr says why it has no effect. tests/cli/mqadmin/test_flags.py compares both with that help.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from cli.exits import warn
from cli.options import OutputFormat

# Begins the names of parameters that are only there to be accepted (`cli.mqadmin.command_line`).
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


class NoEffect(NamedTuple):
    """A flag that has no effect.

    Attributes:
        names: the long ones first.
        reason: why, in words.
        is_flag: it has no value.
    """

    names: tuple[str, ...]
    reason: str
    is_flag: bool = False


NAME_SERVER = NoEffect(("--namesrvAddr", "-n"), "no name server is asked; --address names the gateway")
ALL_SHARDS = "the gateway asks all its shards"
CLUSTER = NoEffect(("--cluster", "-c"), ALL_SHARDS)
EVERY_SHARD = "the change goes to every shard of the gateway"
CLUSTER_NAME = NoEffect(("--clusterName", "--cluster", "-c"), EVERY_SHARD)
BROKER_ADDRESS = NoEffect(("--brokerAddr", "-b"), EVERY_SHARD)
NOT_PUSHED = "no message is pushed to a client; it is only shown. `reput track ID` says how the groups stand with it"
CONSUMER_GROUP = NoEffect(("--consumerGroup", "-g"), NOT_PUSHED)
CLIENT_ID = NoEffect(("--clientId", "-d"), NOT_PUSHED)
NO_UNITS = "units (several installations behind one name) do not exist here"
READ_FROM = "a reader chooses its replica: --readFrom"

NO_EFFECT: dict[str, tuple[NoEffect, ...]] = {
    "queryMsgByKey": (
        NAME_SERVER,
        CLUSTER,
        NoEffect(("--lastKey", "-l"), "pages go on by themselves; -m says how many messages are shown"),
    ),
    "queryMsgById": (NAME_SERVER, CLUSTER, CONSUMER_GROUP, CLIENT_ID, NoEffect(("--unitName", "-u"), NO_UNITS)),
    "queryMsgByUniqueKey": (NAME_SERVER, CLUSTER, CONSUMER_GROUP, CLIENT_ID),
    "queryMsgByOffset": (
        NAME_SERVER,
        NoEffect(("--cluster", "-c"), ALL_SHARDS),
        NoEffect(("--routeTopic", "-r"), "no route is looked up; -b names the shard"),
    ),
    "queryMsgTraceById": (NAME_SERVER,),
    "topicStatus": (NAME_SERVER, CLUSTER),
    "updateTopic": (
        NAME_SERVER,
        CLUSTER_NAME,
        NoEffect(
            ("--order", "-o"),
            "there is no order configuration of a name server; messages of one message group are always stored in order",
        ),
        NoEffect(("--unit", "-u"), NO_UNITS),
        NoEffect(("--hasUnitSub", "-s"), NO_UNITS),
    ),
    "deleteTopic": (NAME_SERVER, CLUSTER_NAME),
    "consumerProgress": (NAME_SERVER, CLUSTER),
    "consumerStatus": (
        NAME_SERVER,
        NoEffect(("--brokerAddr", "-b"), ALL_SHARDS),
        NoEffect(("--jstack", "-s"), "clients are not asked for their stacks; ask the client's process itself", True),
    ),
    "resetOffsetByTime": (
        NAME_SERVER,
        CLUSTER,
        NoEffect(("--force", "-f"), "a reset always goes to where it is told, forward too; mqadmin's -f is deprecated"),
        NoEffect(("--cplus",), "positions are kept for clients of every language", True),
    ),
    "updateSubGroup": (
        NAME_SERVER,
        CLUSTER_NAME,
        BROKER_ADDRESS,
        NoEffect(
            ("--consumeFromMinEnable", "-m"),
            "where a new group begins is the setting REPUT_CONSUMER_NEW_GROUPS_FROM; RocketMQ's broker does not read the flag "
            "either",
        ),
        NoEffect(("--retryQueueNums", "-q"), "the retry topic of a group gets the queues that its messages need"),
        NoEffect(
            ("--groupRetryPolicy", "-p"), "messages come again after their invisible time or RocketMQ's delay levels"
        ),
        NoEffect(("--brokerId", "-i"), READ_FROM),
        NoEffect(("--whichBrokerWhenConsumeSlowly", "-w"), READ_FROM),
        NoEffect(
            ("--notifyConsumerIdsChanged", "-a"),
            "members do not divide the queues among themselves, so they need not hear of each other",
        ),
    ),
    "deleteSubGroup": (
        NAME_SERVER,
        CLUSTER_NAME,
        BROKER_ADDRESS,
        NoEffect(("--removeOffset", "-r"), "a group is always forgotten together with its positions"),
    ),
}


def with_no_effect_flags(name: str, verb: Callable[..., int]) -> Callable[..., int]:
    """mqadmin's verb of this name, with its flags that have no effect added."""
    flags = {f"{NO_EFFECT_PREFIX}{number}": each for number, each in enumerate(NO_EFFECT[name])}

    def run(**arguments: Any) -> int:
        given = [flag for parameter, flag in flags.items() if arguments.pop(parameter) not in (None, False)]
        for flag in given:
            warn(f"{flag.names[-1]} is ignored: {flag.reason}")
        return verb(**arguments)

    signature = inspect.signature(verb, eval_str=True)
    more = [
        inspect.Parameter(
            parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if flag.is_flag else None,
            annotation=Annotated[
                bool if flag.is_flag else str | None,
                typer.Option(*flag.names, help=f"As in mqadmin; without effect here: {flag.reason}."),
            ],
        )
        for parameter, flag in flags.items()
    ]
    run.__name__, run.__doc__ = verb.__name__, verb.__doc__
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    run.__annotations__ = {name: each.annotation for name, each in run.__signature__.parameters.items()}  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    return run
