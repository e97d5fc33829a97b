"""Flags that several verbs share."""

import enum
import pathlib
from typing import Annotated

import typer

DEFAULT_ADDRESS = "127.0.0.1:8081"


class OutputFormat(enum.StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class BodyFormat(enum.StrEnum):
    """How bodies are shown."""

    AUTO = "auto"
    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


Address = Annotated[
    str, typer.Option("--address", envvar="REPUT_ADDRESS", help="The gateway, HOST:PORT.", show_default=True)
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Time limit of one call, in seconds.")]
Output = Annotated[OutputFormat, typer.Option("--output", "-O", "-o", help="How to print the answer.")]
OutputOnly = Annotated[OutputFormat | None, typer.Option("--output", "-O", help="How to print the answer.")]
Body = Annotated[BodyFormat, typer.Option("--body", help="How to show bodies; auto: as text if they are text.")]
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
NameServer = Annotated[
    str | None, typer.Option("--namesrvAddr", "-n", help="As in mqadmin; not needed here and ignored.")
]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="As in mqadmin; not needed here and ignored.")]
Charset = Annotated[str, typer.Option("--bodyFormat", "-f", help="As in mqadmin: the charset of text bodies.")]


def note_ignored(name_server: str | None, cluster: str | None) -> None:
    """Warn that mqadmin's flags for finding a broker are ignored."""
    from cli.exits import warn

    if name_server is not None:
        warn("-n is ignored: there is no name server here; --address names the gateway")
    if cluster is not None:
        warn("-c is ignored: the gateway asks all its shards")
