"""Flags that several verbs share."""

import enum
import pathlib
from typing import Annotated

import typer

from cli.exits import usage_error
from store.errors import InvalidArgumentError
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT, parse_delay_levels, use_delay_levels

DEFAULT_ADDRESS = "127.0.0.1:8081"


class OutputFormat(enum.StrEnum):
    """How answers are printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"

    @property
    def is_table(self) -> bool:
        """For people, not for programs."""
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)


class ReadFromName(enum.StrEnum):
    """Which replica of a shard answers; the names of reput_client.ReadFrom."""

    DEFAULT = "default"
    LEADER = "leader"
    ANY = "any"
    REPLICA = "replica"


class BodyFormat(enum.StrEnum):
    """How bodies are shown."""

    AUTO = "auto"
    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


Address = Annotated[
    str, typer.Option("--address", envvar="REPUT_ADDRESS", help="The gateway, HOST:PORT.", show_default=True)
]
ReadFromOption = Annotated[
    ReadFromName,
    typer.Option(
        "--readFrom",
        envvar="REPUT_READ_FROM",
        help="Which replica of a shard answers; any: others for old records, and while none leads; replica: another one.",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Time limit of one call, in seconds.")]
Output = Annotated[OutputFormat, typer.Option("--output", "-O", "-o", help="How to print the answer.")]
# Of verbs whose -o is mqadmin's; `-o json` still sets the output there (`cli.mqadmin.command_line`).
OutputOnly = Annotated[OutputFormat, typer.Option("--output", "-O", help="How to print the answer.")]
Body = Annotated[BodyFormat, typer.Option("--body", help="How to show bodies; auto: as text if they are text.")]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="PATTERN",
        help=r"Print each message by a pattern, such as '%t %k %b\n': %t topic, %k keys, %g tags, %b body, %S its size, %p "
        r"queue, %o queue offset, %T store time in milliseconds, %D store time, %i offsetMsgId, %u unique key, %n shard, "
        r"%h properties, %%.",
    ),
]
Save = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--save",
        metavar="DIR",
        help="Also write each body, inflated, to a file in this directory, named by its offsetMsgId.",
    ),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="TOKEN",
        help="Wait until this message can be found: the freshness_token of `reput send`; may be repeated.",
    ),
]
Topic = Annotated[str, typer.Option("--topic", "-t", help="Topic name.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Its tag; when repeated, one of these.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME[=VALUE]", help="It has this property; all of them, when repeated."),
]
Text = Annotated[str, typer.Option("--text", help="The inflated body contains this text.")]
IgnoreCase = Annotated[bool, typer.Option("--ignore-case", help="Upper and lower case of --text are the same.")]
Charset = Annotated[str, typer.Option("--bodyFormat", "-f", help="As in mqadmin: the charset of text bodies.")]


def on_this_machine(path: pathlib.Path | None) -> pathlib.Path | None:
    """Callback of an option that names a file or directory to write; typer.BadParameter for a URI.

    Without it, `s3://bucket/x` would make a folder named `s3:`.
    """
    from services.object_uri import is_uri, named

    if path is not None and is_uri(named(path)):
        raise typer.BadParameter("this is a URI: name a path of this machine, and copy the files afterwards")
    return path


DelayLevels = Annotated[
    str,
    typer.Option(
        "--delay-levels", envvar="REPUT_DELAY_LEVELS", help="The store's list of delay levels, if it has its own."
    ),
]


def use_list(delay_levels: str) -> None:
    """Have this process, and the tasks that it makes, use a list; a usage error when it is none."""
    try:
        use_delay_levels(parse_delay_levels(delay_levels))
    except InvalidArgumentError as error:
        usage_error(f"--delay-levels: {error.message}", f"RocketMQ's own list is {DELAY_LEVELS_DEFAULT!r}.")
