"""topicStatus, updateTopic and deleteTopic, with mqadmin's flags (`cli.mqadmin.flags`)."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, usage_error
from cli.mqadmin.values import shard_of
from cli.options import OutputFormat
from cli.queries.topics import QUEUE_COLUMNS, queue_row, times_of
from cli.topic import TIMEOUT_SECONDS, Perm, ReadCount, Type, WriteCount, delete_everywhere, print_settings, type_of

if TYPE_CHECKING:
    from reput_client import MessageType, Topic, TopicSettings

MESSAGE_TYPE_ATTRIBUTE = "message.type"
STATUS_COLUMNS = [*QUEUE_COLUMNS[1:], "last_time"]
# mqadmin's, of a topic that it makes.
QUEUE_COUNT_DEFAULT = 8


def topic_status(
    *,
    topic: options.Topic,
    output: options.Output = OutputFormat.TABLE,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show the queues of a topic with their ranges and the store time of the newest message, as mqadmin's verb does."""
    from cli.client import query_client
    from cli.printing.output import print_rows
    from cli.printing.times import iso_text
    from cli.queries.outcomes import Outcomes
    from reput_client import Completeness

    outcomes = Outcomes()
    listed: list[Topic] = []
    with query_client(address, timeout, read_from.value) as client:
        pages = client.topics(topic=topic)
        for page in pages.pages():
            outcomes.see(page.shards)
            listed += page.items
        times = times_of(client, listed)
    rows = _empty_queues(listed)
    for each in listed:
        for queue in each.queues:
            _, last = times.get((each.topic, queue.broker_name, queue.queue_id), (None, None))
            rows[queue.broker_name, queue.queue_id] = queue_row(queue) | {"last_time": iso_text(last) if last else None}
    print_rows(
        "queues", [row for _, row in sorted(rows.items())], STATUS_COLUMNS, output, {"topic": topic},
        dropped_first=["broker_name"],
        empty=f"the topic {topic!r} has no queue with messages" if listed else f"there is no topic {topic!r}",
    )  # fmt: skip
    if pages.completeness is Completeness.PARTIAL:
        outcomes.warn_partial()
        return Exit.PARTIAL
    return Exit.FOUND if listed else Exit.NOTHING_FOUND


def _empty_queues(topics: "list[Topic]") -> dict[tuple[str, int], dict[str, Any]]:
    """Rows of the configured queues, as they are without messages."""
    return {
        (each.broker_name, queue_id): {
            "broker_name": each.broker_name,
            "queue_id": queue_id,
            "min_offset": 0,
            "max_offset": 0,
            "last_time": None,
        }
        for topic in topics
        for each in topic.settings
        for queue_id in range(max(each.write_queue_count, each.read_queue_count))
    }


def update_topic(
    *,
    topic: options.Topic,
    write_queue_count: WriteCount = None,
    read_queue_count: ReadCount = None,
    perm: Perm = None,
    attributes: Annotated[
        str, typer.Option("--attributes", "-a", help="As in mqadmin: +message.type=FIFO or -message.type.")
    ] = "",
    broker: Annotated[
        str, typer.Option("--brokerAddr", "--brokerName", "-b", help="The only shard, by its name; otherwise all.")
    ] = "",
    output: options.OutputOnly = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Change a topic, or create it where no shard has it: with 8 queues on each, as mqadmin does.

    What is not given stays as it is.
    """
    from cli.client import admin_client
    from reput_client import TopicNotFoundError

    message_type = _type_in(attributes)
    broker_name = shard_of(broker, address, timeout)
    with admin_client(address, timeout) as client:

        def change() -> "list[TopicSettings]":
            return client.update_topic(
                topic,
                write_queue_count=write_queue_count,
                read_queue_count=read_queue_count,
                message_type=message_type,
                perm=perm,
                broker_name=broker_name,
            )

        try:
            rows = change()
        except TopicNotFoundError:
            client.create_topic(
                topic,
                queue_count=write_queue_count or read_queue_count or QUEUE_COUNT_DEFAULT,
                message_type=message_type or type_of(Type.UNSPECIFIED),
                perm=perm or 0,
                broker_name=broker_name,
            )
            rows = change()  # the two counts may differ
    print_settings(rows, output)
    return Exit.FOUND


def delete_topic(
    *,
    topic: options.Topic,
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The only shard; otherwise all.")] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Take a topic out of the configuration of every shard. Its messages can be found until retention removes them."""
    return delete_everywhere(topic, broker_name, output, address, timeout)


def _type_in(attributes: str) -> "MessageType | None":
    """The message type in mqadmin's attributes; None when they do not say one."""
    message_type = None
    for part in (each.strip() for each in attributes.split(",") if each.strip()):
        name, _, value = part[1:].partition("=")
        if name != MESSAGE_TYPE_ATTRIBUTE or part[0] not in "+-" or (part[0] == "-") != (value == ""):
            usage_error(f"the attribute {part!r} is not known", "Write +message.type=FIFO or -message.type.")
        if value and value not in Type.__members__:
            usage_error(f"{value!r} is not a message type", f"Types: {', '.join(Type.__members__)}.")
        message_type = type_of(Type(value or "UNSPECIFIED"))
    return message_type
