"""mqadmin's four query verbs, with mqadmin's flags."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import note, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.queries.found import (
    MESSAGES_DEFAULT,
    PAGE_SIZE_MAX,
    TIMEOUT_SECONDS,
    print_found,
    read_all,
    window,
    with_body,
)
from cli.queries.outcomes import Outcomes

if TYPE_CHECKING:
    from reput_client import Message


def query_msg_by_key(
    *,
    topic: options.Topic,
    key: Annotated[str, typer.Option("--msgKey", "-k", help="Business key, whole.")],
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[
        int, typer.Option("--maxNum", "-m", min=1, help="At most this many messages.")
    ] = MESSAGES_DEFAULT,
    after: options.After = None,
    name_server: options.NameServer = None,
    cluster: options.Cluster = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find messages by topic and business key, newest first.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli.client import query_client

    options.note_ignored(name_server, cluster)
    first, last = window(begin, end)
    with query_client(address, timeout, read_from.value) as client:
        pages = client.by_key(
            topic, key, first, last, page_size=PAGE_SIZE_MAX, after=after or (), max_messages=max_messages
        )
        found, outcomes = read_all(pages)
        messages = [with_body(client, message) for message in found]
    return print_found(
        messages, pages.completeness, output, body, save, details=False, pattern=pattern, outcomes=outcomes
    )


def query_msg_by_id(
    *,
    offset_msg_id: Annotated[str, typer.Option("--msgId", "-i", help="offsetMsgId: 32 or 56 hex digits.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="The message must be of this topic.")] = "",
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard to ask.")] = "",
    name_server: options.NameServer = None,
    cluster: options.Cluster = None,
    charset: options.Charset = "utf-8",
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Read the message that an offsetMsgId names. No connection is made to the address inside the id."""
    from cli.client import query_client
    from reput_client import Completeness

    options.note_ignored(name_server, cluster)
    _check_charset(charset)
    with query_client(address, timeout, read_from.value) as client:
        message = with_body(client, client.by_id(offset_msg_id, topic=topic, broker_name=broker_name))
    return print_found(
        [message], Completeness.COMPLETE, output, body, save, details=True, pattern=pattern, charset=charset
    )


def query_msg_by_unique_key(
    *,
    topic: options.Topic,
    unique_key: Annotated[str, typer.Option("--msgId", "-i", help="The producer's id, whole.")],
    show_all: Annotated[bool, typer.Option("--showAll", "-a", help="Every copy, not only the newest.")] = False,
    after: options.After = None,
    name_server: options.NameServer = None,
    cluster: options.Cluster = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find a message by the producer's unique key; with -a every copy, newest first."""
    from cli.client import query_client
    from reput_client import Completeness

    options.note_ignored(name_server, cluster)
    with query_client(address, timeout, read_from.value) as client:
        pages = client.by_unique_key(
            topic, unique_key, page_size=PAGE_SIZE_MAX, after=after or (), max_messages=None if show_all else 1
        )
        found, outcomes = read_all(pages)
        messages = [with_body(client, message) for message in found]
    if pages.completeness is Completeness.TRUNCATED and not show_all:
        note("there may be more copies: -a shows all")
    return print_found(
        messages, pages.completeness, output, body, save, details=True, pattern=pattern, outcomes=outcomes
    )


def query_msg_by_offset(
    *,
    topic: options.Topic,
    queue_id: Annotated[int, typer.Option("--queueId", "-i", help="Queue inside the topic.")],
    offset_or_format: Annotated[
        list[str],
        typer.Option("--offset", "-o", metavar="N|FORMAT", help="Queue offset; a format name sets the output instead."),
    ],
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard; not needed with only one.")] = "",
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="How many messages from there on.")] = 1,
    after: options.After = None,
    name_server: options.NameServer = None,
    cluster: options.Cluster = None,
    charset: options.Charset = "utf-8",
    output: options.OutputOnly = None,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Read messages from a position of a queue.

    As in mqadmin, -o is the queue offset; -o table|json|jsonl sets the output here too.
    """
    from cli.client import query_client
    from reput_client import Completeness

    options.note_ignored(name_server, cluster)
    _check_charset(charset)
    queue_offset, named_output = read_offset_and_format(offset_or_format)
    if not -(1 << 31) <= queue_id < 1 << 31:
        usage_error(f"queue id {queue_id} does not fit in 32 bits", "`reput topics` lists the queues of each topic.")
    messages: list[Message] = []
    outcomes = Outcomes()
    queue_range = None
    with query_client(address, timeout, read_from.value) as client:
        pages = client.by_offset(
            topic, queue_id, queue_offset, broker_name, max_messages, page_size=PAGE_SIZE_MAX, after=after or ()
        )
        for page in pages.pages():
            queue_range = page.queue_range
            outcomes.see(page.shards)
            messages += [with_body(client, message) for message in page.items]
            if not page.items:  # the client would continue at the queue's first message
                break
    if not messages and queue_range is not None:
        held = f"[{queue_range.min_offset}, {queue_range.max_offset})"
        warn(f"nothing at queue offset {queue_offset}: the queue holds {held}")
    # The answer to "these positions" is complete, however far the queue goes on.
    is_partial = pages.completeness is Completeness.PARTIAL
    return print_found(
        messages,
        Completeness.PARTIAL if is_partial else Completeness.COMPLETE,
        output or named_output or OutputFormat.TABLE,
        body,
        save,
        details=max_messages == 1,
        pattern=pattern,
        charset=charset,
        outcomes=outcomes,
    )


def read_offset_and_format(values: list[str]) -> tuple[int, OutputFormat | None]:
    """The queue offset and the format name among the values of `-o`.

    Raises:
        CliError: no offset, two of one kind, or neither kind.
    """
    formats = [OutputFormat(value) for value in values if value in list(OutputFormat)]
    offsets = []
    for value in values:
        if value in list(OutputFormat):
            continue
        try:
            offsets.append(int(value))
        except ValueError:
            usage_error(f"-o {value!r} is neither a queue offset nor one of {', '.join(OutputFormat)}")
    if len(offsets) != 1 or len(formats) > 1:
        usage_error("-o takes one queue offset, and at most one format name", "For example: -o 42 -o json")
    if not -(1 << 63) <= offsets[0] < 1 << 63:
        usage_error(f"queue offset {offsets[0]} does not fit in 64 bits")
    return offsets[0], formats[0] if formats else None


def _check_charset(charset: str) -> None:
    import codecs

    try:
        codecs.lookup(charset)
    except LookupError:
        usage_error(f"-f {charset!r} is not a known charset", "For example: -f utf-8, -f gbk")
