"""Which verbs are mqadmin's, and which of their flags have no effect here, each with the reason.

Every flag that `mqadmin help VERB` of RocketMQ 5.5.0 names is a parameter of the verb, or a row here: then it is accepted, and
a line on stderr says why it has no effect. tests/cli/mqadmin/test_flags.py compares both with that help.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from cli.exits import warn
from cli.mqadmin.command_line import NO_EFFECT_PREFIX


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
        NoEffect(("--attributes",), "groups have no attributes here"),
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
