"""mqadmin's four query verbs, with mqadmin's flags."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import options
from cli.exits import Exit, note, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.outcomes import Outcomes

PAGE_SIZE_MAX = 1000  # the gateway clamps to this
MESSAGES_DEFAULT = 64
TIMEOUT_SECONDS = 30.0


def query_msg_by_key(
    *,
    topic: options.Topic,
    key: Annotated[str, typer.Option("--msgKey", "-k", help="Business key, whole.")],
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="At most so many.")] = MESSAGES_DEFAULT,
    after: options.After = None,
    name_server: options.NameServer = None,
    cluster: options.Cluster = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find messages by topic and business key, newest first.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb

    options.note_ignored(name_server, cluster)
    request = pb.QueryMessageByKeyRequest(topic=topic, key=key, freshness_tokens=after or [])
    _set_window(request, begin, end)
    with gateway(address) as stub:
        pages = _Pages(lambda page: stub.QueryMessageByKey(page, timeout=timeout), request, max_messages)
        messages = [_with_body(stub, message, timeout) for message in pages]
    return _print_found(messages, pages.completeness, output, body, save, details=False, outcomes=pages.outcomes)


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
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Read the message that an offsetMsgId names. The address inside the id is never dialled."""
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb

    options.note_ignored(name_server, cluster)
    _check_charset(charset)
    request = pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id, topic=topic, broker_name=broker_name)
    with gateway(address) as stub:
        message = _with_body(stub, stub.QueryMessageById(request, timeout=timeout).message, timeout)
    return _print_found([message], _complete(), output, body, save, details=True, charset=charset)


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
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find a message by the producer's unique key; with -a every copy, newest first."""
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb

    options.note_ignored(name_server, cluster)
    request = pb.QueryMessageByUniqueKeyRequest(topic=topic, unique_key=unique_key, freshness_tokens=after or [])
    with gateway(address) as stub:
        pages = _Pages(
            lambda page: stub.QueryMessageByUniqueKey(page, timeout=timeout), request, None if show_all else 1
        )
        messages = [_with_body(stub, message, timeout) for message in pages]
    if pages.completeness == _truncated() and not show_all:
        note("there may be more copies: -a shows all")
    return _print_found(messages, pages.completeness, output, body, save, details=True, outcomes=pages.outcomes)


def query_msg_by_offset(
    *,
    topic: options.Topic,
    queue_id: Annotated[int, typer.Option("--queueId", "-i", help="Queue inside the topic.")],
    offset_or_format: Annotated[
        list[str],
        typer.Option("--offset", "-o", metavar="N|FORMAT", help="Queue offset; a format name sets the output instead."),
    ],
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard; not needed with only one.")] = "",
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="So many from there on.")] = 1,
    after: options.After = None,
    name_server: options.NameServer = None,
    cluster: options.Cluster = None,
    charset: options.Charset = "utf-8",
    output: options.OutputOnly = None,
    body: options.Body = BodyFormat.AUTO,
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Read messages from a position of a queue.

    As in mqadmin, -o is the queue offset; -o table|json|jsonl sets the output here too.
    """
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb

    options.note_ignored(name_server, cluster)
    _check_charset(charset)
    queue_offset, named_output = read_offset_and_format(offset_or_format)
    if not -(1 << 31) <= queue_id < 1 << 31:
        usage_error(f"queue id {queue_id} does not fit in 32 bits", "`reput topics` lists the queues of each topic.")
    messages: list[Any] = []
    outcomes = Outcomes()
    next_queue_offset = queue_offset
    with gateway(address) as stub:
        while True:
            request = pb.QueryMessageByOffsetRequest(
                topic=topic,
                queue_id=queue_id,
                queue_offset=next_queue_offset,
                broker_name=broker_name,
                max_messages=min(max_messages - len(messages), PAGE_SIZE_MAX),
                freshness_tokens=after or [],
            )
            answer = stub.QueryMessageByOffset(request, timeout=timeout)
            outcomes.see(answer.shards)
            messages += [_with_body(stub, message, timeout) for message in answer.messages]
            went_on = answer.next_queue_offset > next_queue_offset and answer.messages
            next_queue_offset = answer.next_queue_offset
            if len(messages) >= max_messages or not went_on or next_queue_offset >= answer.max_offset:
                break
    if not messages:
        warn(f"nothing at queue offset {queue_offset}: the queue holds [{answer.min_offset}, {answer.max_offset})")
    details = max_messages == 1
    chosen = output or named_output or OutputFormat.TABLE
    return _print_found(
        messages, answer.completeness, chosen, body, save, details=details, charset=charset, outcomes=outcomes
    )


def read_offset_and_format(values: list[str]) -> tuple[int, OutputFormat | None]:
    """Tell the queue offset and the format name apart among the values of `-o`.

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


class _Pages:
    """All messages of a paged query, up to a number.

    Args:
        call: asks for one page.
        request: the query; its page fields are set here.
        messages_max: when to stop; None: never.
        field: of an answer, that holds a page's messages, or what else stands for one each.

    Attributes:
        completeness: of the whole, once iterated: PARTIAL when any page was, TRUNCATED when more may be there.
        outcomes: how the shards took part.
    """

    def __init__(
        self, call: Callable[[Any], Any], request: Any, messages_max: int | None, field: str = "messages"
    ) -> None:
        self._call = call
        self._request = request
        self._messages_max = messages_max
        self._field = field
        self.completeness = _complete()
        self.outcomes = Outcomes()

    def __iter__(self) -> Iterator[Any]:
        from reput.message.v1 import message_pb2

        count = 0
        partial = False
        while True:
            left = PAGE_SIZE_MAX if self._messages_max is None else self._messages_max - count
            self._request.page_size = min(left, PAGE_SIZE_MAX)
            answer = self._call(self._request)
            self.outcomes.see(answer.shards)
            partial |= answer.completeness == message_pb2.COMPLETENESS_PARTIAL
            page = getattr(answer, self._field)
            yield from page
            count += len(page)
            enough = self._messages_max is not None and count >= self._messages_max
            if enough or not answer.next_page_token:
                break
            self._request.page_token = answer.next_page_token
            note(f"{count} messages so far")
        if partial:
            self.completeness = message_pb2.COMPLETENESS_PARTIAL
        elif answer.next_page_token:
            self.completeness = message_pb2.COMPLETENESS_TRUNCATED


def _set_window(request: Any, begin: str | None, end: str | None) -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    from cli.times import parse_limit

    now_millis = time.time_ns() // 1_000_000
    for field, text in (("begin_time", begin), ("end_time", end)):
        millis = parse_limit(text, now_millis, is_end=field == "end_time")
        if millis is not None:
            moment = Timestamp(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)
            getattr(request, field).CopyFrom(moment)


def _complete() -> Any:
    from reput.message.v1 import message_pb2

    return message_pb2.COMPLETENESS_COMPLETE


def _truncated() -> Any:
    from reput.message.v1 import message_pb2

    return message_pb2.COMPLETENESS_TRUNCATED


def _check_charset(charset: str) -> None:
    import codecs

    try:
        codecs.lookup(charset)
    except LookupError:
        usage_error(f"-f {charset!r} is no charset", "For example: -f utf-8, -f gbk")


def _with_body(stub: Any, message: Any, timeout: float) -> Any:
    """The message; a body that its page had no room for is fetched."""
    from reput.gateway.v1 import gateway_service_pb2 as pb

    if message.body_omitted:
        request = pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
        message.body = b"".join(piece.chunk for piece in stub.DownloadBody(request, timeout=timeout))
        message.body_omitted = False
    return message


def _print_found(
    messages: list[Any],
    completeness: Any,
    output: OutputFormat,
    body: BodyFormat,
    save: Path | None,
    *,
    details: bool,
    charset: str = "utf-8",
    extra: Mapping[str, Sequence[object]] | None = None,
    outcomes: Outcomes | None = None,
) -> Exit:
    """Print the messages, with further columns before their own, and say by the exit code what they are worth."""
    from cli import output as printing
    from cli.rows import message_row
    from reput.message.v1 import message_pb2

    binary_form = "hex" if output is OutputFormat.TABLE else "base64"
    rows = [
        {name: values[index] for name, values in (extra or {}).items()}
        | message_row(message, body.value, binary_form, charset)
        for index, message in enumerate(messages)
    ]
    if save is not None:
        from cli.bodies import save_bodies

        for row, path in zip(rows, save_bodies(messages, save), strict=True):
            row["body_file"] = str(path)
    name = message_pb2.Completeness.Name(completeness).removeprefix("COMPLETENESS_")
    if output is OutputFormat.JSON:
        shards = {"shards": outcomes.rows()} if outcomes is not None else {}
        printing.print_json({"messages": rows, "completeness": name} | shards)
    elif output is OutputFormat.JSONL:
        printing.print_jsonl(rows)
    elif rows and details:
        printing.print_message_details(rows)
    elif rows:
        printing.print_message_table(rows)
    if completeness == message_pb2.COMPLETENESS_PARTIAL:
        (outcomes or Outcomes()).warn_partial()
        return Exit.PARTIAL
    if completeness == message_pb2.COMPLETENESS_TRUNCATED:
        note("there are, or may be, more messages")
    if not rows:
        note("no message found")
        return Exit.NOTHING_FOUND
    return Exit.FOUND
