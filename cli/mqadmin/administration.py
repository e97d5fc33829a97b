"""Topics and consumer groups with mqadmin's flags: topicStatus, updateTopic, deleteTopic, consumerProgress, consumerStatus,
updateSubGroup, deleteSubGroup and resetOffsetByTime.

Flags without effect stand in `cli.mqadmin.command_line`.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, usage_error, warn
from cli.groups import delete, reset_offset, set_group, show_group, show_lag
from cli.options import OutputFormat
from cli.topics import (
    QUEUE_COLUMNS,
    TIMEOUT_SECONDS,
    Perm,
    ReadCount,
    Type,
    WriteCount,
    delete_everywhere,
    print_settings,
    queue_row,
    times_of,
    type_of,
)

if TYPE_CHECKING:
    from reput_client import MessageType, Topic, TopicSettings

MESSAGE_TYPE_ATTRIBUTE = "message.type"
LITE_EXPIRATION_ATTRIBUTE = "lite.topic.expiration"
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
    from cli.messages import Outcomes
    from cli.printing import print_rows
    from cli.times import iso_text
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
        str,
        typer.Option(
            "--attributes",
            "-a",
            help="As in mqadmin: +message.type=FIFO, -message.type, +lite.topic.expiration=MINUTES.",
        ),
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

    message_type, expiration = _topic_attributes_in(attributes)
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
                lite_expiration_minutes=expiration,
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
                lite_expiration_minutes=expiration or 0,
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


def _topic_attributes_in(attributes: str) -> "tuple[MessageType | None, int | None]":
    """The message type and the expiration (minutes) in mqadmin's attributes; None where they do not say one."""
    message_type = minutes = None
    for part in (each.strip() for each in attributes.split(",") if each.strip()):
        name, _, value = part[1:].partition("=")
        is_known = name in (MESSAGE_TYPE_ATTRIBUTE, LITE_EXPIRATION_ATTRIBUTE)
        if not is_known or part[0] not in "+-" or (part[0] == "-") != (value == ""):
            usage_error(
                f"the attribute {part!r} is not known",
                "Write +message.type=FIFO, -message.type or +lite.topic.expiration=MINUTES.",
            )
        if name == LITE_EXPIRATION_ATTRIBUTE:
            minutes = _expiration_in(value) if value else 0
            continue
        if value and value not in Type.__members__:
            usage_error(f"{value!r} is not a message type", f"Types: {', '.join(Type.__members__)}.")
        message_type = type_of(Type(value or "UNSPECIFIED"))
    return message_type, minutes


def _expiration_in(value: str) -> int:
    from store.format.topic import lite_expiration_minutes_of

    try:
        return lite_expiration_minutes_of(value)
    except ValueError as error:
        usage_error(str(error))


NOW = ("now", "currentTimeMillis")

GroupName = Annotated[str, typer.Option("--groupName", "-g", help="Name of the group.")]


def consumer_progress(
    *,
    name: Annotated[str, typer.Option("--groupName", "-g", help="The only group; all when left out.")] = "",
    topic: Annotated[str, typer.Option("--topicName", "-t", help="Only this topic.")] = "",
    show_clients: Annotated[
        str,
        typer.Option(
            "--showClientIP", "-s", metavar="BOOL", help="true: with the members that may get messages of each queue."
        ),
    ] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput lag`, with mqadmin's flags."""
    with_clients = bool(truth_of(show_clients, "-s"))
    return show_lag(name, topic, output, address, timeout, with_clients=with_clients)


def consumer_status(
    *,
    name: Annotated[str, typer.Option("--consumerGroup", "-g", help="Name of the group.")],
    client_id: Annotated[str, typer.Option("--clientId", "-i", help="The only member to show.")] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput groups GROUP`, with mqadmin's flags."""
    return show_group(name, output, address, timeout, client_id)


def update_sub_group(
    *,
    name: GroupName,
    consume: Annotated[
        str, typer.Option("--consumeEnable", "-s", metavar="BOOL", help="Whether the group gets messages.")
    ] = "",
    broadcast: Annotated[
        str,
        typer.Option("--consumeBroadcastEnable", "-d", metavar="BOOL", help="Each member consumes every message."),
    ] = "",
    ordered: Annotated[
        str,
        typer.Option(
            "--consumeMessageOrderly", "-o", metavar="BOOL", help="One message of a message group after the other."
        ),
    ] = "",
    retry_max_times: Annotated[
        int | None, typer.Option("--retryMaxTimes", "-r", min=0, help="Deliveries after the first.")
    ] = None,
    attributes: Annotated[
        str,
        typer.Option(
            "--attributes", help="As in mqadmin: +priority.factor=50, -priority.factor, +lite.bind.topic=TOPIC."
        ),
    ] = "",
    output: options.OutputOnly = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput group update`, with mqadmin's flags; what is not given stays as it is."""
    consumes = truth_of(consume, "-s")
    factor, lite = _group_attributes_in(attributes)
    return set_group(
        name,
        output,
        address,
        timeout,
        ordered=truth_of(ordered, "-o"),
        delivery_attempts_max=None if retry_max_times is None else retry_max_times + 1,
        consume_disabled=None if consumes is None else not consumes,
        broadcast=truth_of(broadcast, "-d"),
        priority_factor=factor,
        lite_attributes=lite,
    )


def _group_attributes_in(attributes: str) -> tuple[int | None, dict[str, str]]:
    """The priority factor that a change of attributes sets, None when it does not say it, and the attributes `lite.*`."""
    from store.errors import InvalidArgumentError
    from store.format.delivery.consumer_files import (
        LITE_ATTRIBUTES,
        PRIORITY_FACTOR_ATTRIBUTE,
        altered_lite_attributes,
        altered_priority_factor,
    )

    known = (PRIORITY_FACTOR_ATTRIBUTE, *LITE_ATTRIBUTES)
    parts = [each.strip().partition("=") for each in attributes.split(",") if each.strip()]
    for name, _, value in parts:
        if name[1:] not in known or name[0] not in "+-" or (value and name[0] == "-"):
            usage_error(f"--attributes {name}={value}", f"Of a group, +NAME=VALUE or -NAME of {', '.join(known)}.")
    signed = {name: value for name, _, value in parts}
    try:
        return altered_priority_factor(signed), altered_lite_attributes(signed)
    except InvalidArgumentError as error:
        usage_error(f"--attributes {attributes}", error.message)


def delete_sub_group(
    *,
    name: GroupName,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput group delete`, with mqadmin's flags."""
    return delete(name=name, address=address, timeout=timeout)


def reset_offset_by_time(
    *,
    group: Annotated[str, typer.Option("--group", "-g", help="Name of the group.")],
    topic: options.Topic,
    moment: Annotated[
        str,
        typer.Option(
            "--timestamp", "-s", metavar="TIME", help="now, epoch milliseconds, yyyy-MM-dd#HH:mm:ss:SSS; -1 is the end."
        ),
    ] = "",
    queue_offset: Annotated[
        int | None, typer.Option("--offset", "-o", min=-1, help="Instead of -s: this position of the queue -q.")
    ] = None,
    queue_id: Annotated[int | None, typer.Option("--queue", "-q", min=-1, help="Only this queue; -1: all.")] = None,
    broker: Annotated[str, typer.Option("--broker", "--brokerName", "-b", help="Only this shard.")] = "",
    output: options.OutputOnly = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """As `reput reset-offset --time`, with mqadmin's flags: `now` is the end of each queue, and -o needs -q."""
    queue_id = None if queue_id == -1 else queue_id
    queue_offset = None if queue_offset == -1 else queue_offset
    if queue_offset is not None and queue_id is None:
        if not moment:
            usage_error("-o is a position of one queue: name it with -q", "Or give a time with -s.")
        warn("-o is ignored: it is a position of one queue, and -q names none; -s is used, as in mqadmin")
        queue_offset = None
    if queue_offset is None and not moment:
        usage_error("no time: give -s", "For example: -s now, -s 1795256951776, -s 2026-01-31#12:00:00:000.")
    # As RocketMQ's broker: a time before 1970 is the end.
    is_end = queue_offset is None and (moment in NOW or re.fullmatch(r"-\d+", moment) is not None)
    return reset_offset(
        group=group,
        topic=topic,
        earliest=False,
        latest=is_end,
        moment="" if is_end or queue_offset is not None else _iso_of(moment),
        queue_offset=queue_offset,
        queue_id=queue_id,
        broker_name=shard_of(broker, address, timeout),
        dry_run=False,
        output=output,
        address=address,
        timeout=timeout,
    )


def _iso_of(moment: str) -> str:
    """mqadmin's form of a time, `yyyy-MM-dd#HH:mm:ss:SSS`, as ISO-8601; other forms as they are."""
    day, hash_, clock = moment.partition("#")
    return f"{day}T{'.'.join(clock.rsplit(':', 1)) if clock.count(':') == 3 else clock}" if hash_ else moment


def truth_of(text: str, flag: str) -> bool | None:
    """`true` or `false`, in any case; None when nothing is given. Java takes any other text for false: here it is refused.

    Raises:
        CliError: it is neither.
    """
    if not text:
        return None
    if text.lower() not in ("true", "false"):
        usage_error(f"{flag} {text!r} is neither true nor false")
    return text.lower() == "true"


def shard_of(text: str, address: str, timeout: float) -> str:
    """The shard that `-b` names; mqadmin names a broker by its address, which fits where there is only one shard.

    Raises:
        CliError: it is an address, and there are several shards.
    """
    from cli.client import query_client

    if ":" not in text:
        return text
    with query_client(address, timeout) as client:
        names = sorted({each.broker_name for each in client.installation().services if each.broker_name})
    if len(names) > 1:
        usage_error(f"-b {text} is an address, and shards go by their names here", f"Shards: {', '.join(names)}.")
    warn(f"-b {text} is an address: taken for the only shard, {names[0] if names else ''}")
    return names[0] if names else ""
