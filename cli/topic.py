"""`reput topic create|update|delete|list`."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import PARTIAL, Exit
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput_client import MessageType, TopicSettings

TIMEOUT_SECONDS = 10.0
COLUMNS = ["topic", "broker_name", "write_queue_count", "read_queue_count", "perm", "message_type"]


class Type(enum.StrEnum):
    """Which messages a topic is for."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")]
BrokerName = Annotated[str, typer.Option("--brokerName", "-b", help="The only shard; otherwise all.")]
Perm = Annotated[int | None, typer.Option("--perm", "-p", min=2, max=6, help="2 write, 4 read, 6 both.")]
ReadCount = Annotated[int | None, typer.Option("--readQueueNums", "-r", min=1, help="Queues that a consumer reads.")]
WriteCount = Annotated[
    int | None, typer.Option("--writeQueueNums", "-w", min=1, help="Queues that a producer may write to.")
]


def create(
    *,
    topic: Name,
    queue_count: Annotated[
        int, typer.Option("--queues", "-q", min=0, help="Queues on each shard; 0: the store's default.")
    ] = 0,
    message_type: Annotated[Type, typer.Option("--type", help="Which messages it is for.")] = Type.UNSPECIFIED,
    perm: Perm = None,
    broker_name: BrokerName = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Create a topic on every shard. One that exists with these values stays as it is."""
    from cli.client import admin_client

    with admin_client(address, timeout) as client:
        rows = client.create_topic(
            topic,
            queue_count=queue_count,
            message_type=type_of(message_type),
            perm=perm or 0,
            broker_name=broker_name,
        )
    print_settings(rows, output)
    return Exit.FOUND


def update(
    *,
    topic: Name,
    queue_count: Annotated[
        int | None, typer.Option("--queues", "-q", min=1, help="Queues to write and to read on each shard.")
    ] = None,
    write_queue_count: WriteCount = None,
    read_queue_count: ReadCount = None,
    message_type: Annotated[
        Type | None, typer.Option("--type", help="Which messages it is for; UNSPECIFIED takes the attribute away.")
    ] = None,
    perm: Perm = None,
    broker_name: BrokerName = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Change a topic on every shard that has it. What is not given stays as it is.

    To shrink a topic, lower -w first, and -r when consumers have read the other queues.
    """
    from cli.client import admin_client

    with admin_client(address, timeout) as client:
        rows = client.update_topic(
            topic,
            queue_count=queue_count,
            write_queue_count=write_queue_count,
            read_queue_count=read_queue_count,
            message_type=None if message_type is None else type_of(message_type),
            perm=perm,
            broker_name=broker_name,
        )
    print_settings(rows, output)
    return Exit.FOUND


def delete(
    *,
    topic: Name,
    broker_name: BrokerName = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Take a topic out of the configuration of every shard. Its messages can be found until retention removes them."""
    return delete_everywhere(topic, broker_name, output, address, timeout)


def list_settings(
    *,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List how the topics are configured on each shard; `reput topics` lists their queues."""
    from cli.client import query_client
    from cli.exits import warn
    from cli.queries.topics import list_topics

    with query_client(address, timeout) as client:
        topics, partial = list_topics(client)
    rows = [row for topic in topics for row in topic.settings]
    print_settings(rows, output)
    if partial:
        warn(PARTIAL)
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def delete_everywhere(topic: str, broker_name: str, output: OutputFormat, address: str, timeout: float) -> int:
    """Delete a topic, and print the shards that had it; exit 1 when there is none."""
    from cli.client import admin_client
    from cli.printing.output import print_rows

    with admin_client(address, timeout) as client:
        names = client.delete_topic(topic, broker_name=broker_name)
    rows = [{"topic": topic, "broker_name": name} for name in names]
    print_rows("topics", rows, COLUMNS[:2], output, empty=f"no shard had {topic}")
    return Exit.FOUND if names else Exit.NOTHING_FOUND


def type_of(given: Type) -> "MessageType":
    """The client's name of a type."""
    from reput_client import MessageType

    return MessageType[given.name]


def print_settings(rows: "list[TopicSettings]", output: OutputFormat) -> None:
    """A row for each shard."""
    from cli.printing.output import print_rows

    shown = [
        {column: getattr(row, column) for column in COLUMNS} | {"message_type": row.message_type.name} for row in rows
    ]
    print_rows("topics", shown, COLUMNS, output, dropped_first=["read_queue_count", "perm"])
