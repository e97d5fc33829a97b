"""The verbs of mqadmin that find messages and their traces, with mqadmin's flags (`cli.mqadmin.command_line`)."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.bodies import inflate
from cli.exits import Exit, note, say_empty, usage_error, warn
from cli.find import find_by_tag, forms_of, typed_ids, why_no_key
from cli.messages import MESSAGES_DEFAULT, PAGE_SIZE_MAX, TIMEOUT_SECONDS, Outcomes, print_found, read_all, window
from cli.options import BodyFormat, OutputFormat
from cli.terminal import neutralise
from store.format.message_trace import TraceBody, TraceEvent, TraceKind, decode_trace_body, join_traces
from store.format.topic import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from reput_client import Message, MessageTracks, QueryClient


# Messages whose consumer groups are shown: each costs a call that asks every shard.
TRACKED_COUNT_MAX = 16
TRACKED_GROUP_COUNT_MAX = 100
TRACE_MESSAGE_COUNT_MAX = 10_000
TRACE_ENTRY_COUNT_MAX = 100_000


class KeyType(enum.StrEnum):
    """What a key of queryMsgByKey is, by mqadmin's letters."""

    KEY = "K"
    TAG = "T"


def query_msg_by_key(
    *,
    topic: options.Topic,
    key: Annotated[str, typer.Option("--msgKey", "-k", help="Business key, whole.")],
    key_type: Annotated[KeyType, typer.Option("--keyType", "-p", help="K: a business key; T: the tags.")] = KeyType.KEY,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[
        int, typer.Option("--maxNum", "-m", min=1, help="At most this many messages.")
    ] = MESSAGES_DEFAULT,
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find messages by topic and business key, or by topic and tags, newest first.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli.client import query_client

    first, last = window(begin, end)
    with query_client(address, timeout, read_from.value) as client:
        if key_type is KeyType.TAG:
            found, completeness, outcomes = find_by_tag(client, topic, key, first, last, after or (), max_messages)
        else:
            pages = client.by_key(
                topic, key, first, last, page_size=PAGE_SIZE_MAX, after=after or (), max_messages=max_messages
            )
            found, outcomes = read_all(pages)
            completeness = pages.completeness
        messages = [client.with_body(message) for message in found]
    why = "" if key_type is KeyType.TAG else why_no_key(key)
    return print_found(
        messages, completeness, output, body, save, details=False, pattern=pattern, outcomes=outcomes,
        empty=why or "no message found",
    )  # fmt: skip


def query_msg_by_id(
    *,
    ids: Annotated[
        str,
        typer.Option(
            "--msgId", "-i", help="offsetMsgId: 32 or 56 hex digits; several with commas. With -t also a producer's id."
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", help="The message must be of this topic.")] = "",
    resend: Annotated[
        str,
        typer.Option(
            "--sendMessage",
            "-s",
            metavar="BOOL",
            help="true: send each message again, as a new one with a new unique key.",
        ),
    ] = "",
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard to ask.")] = "",
    charset: options.Charset = "utf-8",
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Read the messages that offsetMsgIds name. No connection is made to the address inside an id.

    Exit 1 when one of several ids is not found.
    """
    from cli.client import failure_of, query_client
    from cli.mqadmin.administration import truth_of
    from reput_client import Completeness, InvalidRequestError, NotFoundError

    _check_charset(charset)
    is_resent = truth_of(resend, "-s")
    asked = typed_ids(ids)
    if not asked:
        usage_error("-i names no id", "For example: -i 7F00000100002A9F0000000000000000")
    messages: list[Message] = []
    missing = 0
    with query_client(address, timeout, read_from.value) as client:
        for each in asked:
            try:
                messages.append(client.with_body(_by_id(client, each, topic, broker_name)))
            except (NotFoundError, InvalidRequestError) as error:
                if len(asked) == 1:
                    raise
                failure = failure_of(error, address)
                warn(f"{each}: {failure.reason}: {failure.message}")
                missing += 1
        tracks = _tracks(client, messages, output, pattern)
    if is_resent and messages:
        code = _resend(messages, output, address, timeout)
    else:
        code = print_found(
            messages, Completeness.COMPLETE, output, body, save, details=True, pattern=pattern, charset=charset
        )
        _print_tracks(tracks)
    return Exit.NOTHING_FOUND if missing else code


def _by_id(client: "QueryClient", text: str, topic: str, broker_name: str) -> "Message":
    """The message of an offsetMsgId; as in mqadmin, else the one of the topic with this unique key."""
    from reput_client import InvalidRequestError, NotFoundError

    try:
        return client.by_id(text, topic=topic, broker_name=broker_name)
    except (NotFoundError, InvalidRequestError):
        for form in forms_of(text) if topic else ():
            for message in client.by_unique_key(topic, form, max_messages=1):
                return message
        raise


def _resend(messages: "Sequence[Message]", output: OutputFormat, address: str, timeout: float) -> Exit:
    """Send copies of the messages, each with a new unique key: one with a known key would not be stored again."""
    from cli.client import append_client
    from cli.send import print_receipts
    from reput_client import NewMessage
    from services.message_copy import copied_properties

    copies = [
        NewMessage(
            each.topic,
            each.body,
            keys=each.keys,
            tags=each.tags,
            properties=copied_properties(each.properties),
            flag=each.flag,
        )
        for each in messages
    ]
    with append_client(address, timeout) as client:
        try:
            receipts = client.append(copies)
        except ValueError as error:
            usage_error(f"the message cannot be sent: {error}")
    for each in messages:
        note(f"sent again: {each.offset_msg_id}")
    print_receipts(receipts, output)
    return Exit.FOUND


def query_msg_by_unique_key(
    *,
    topic: options.Topic,
    unique_key: Annotated[str, typer.Option("--msgId", "-i", help="The producer's id, whole.")],
    begin: Annotated[str | None, typer.Option("--startTime", "-s", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--endTime", "-e", help="Stored at or before this.")] = None,
    show_all: Annotated[bool, typer.Option("--showAll", "-a", help="Every copy, not only the newest.")] = False,
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find a message by the producer's unique key; with -a every copy, newest first.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h). Without -s and -e all times are looked in; mqadmin looks
    36 hours back.
    """
    from cli.client import query_client
    from reput_client import Completeness

    first, last = window(begin, end)
    found: list[Message] = []
    with query_client(address, timeout, read_from.value) as client:
        for form in forms_of(unique_key):
            pages = client.by_unique_key(topic, form, page_size=PAGE_SIZE_MAX, after=after or ())
            found, outcomes = [], Outcomes()
            for page in pages.pages():
                outcomes.see(page.shards)
                found += [each for each in page.items if _is_within(each, first, last)]
                if found and not show_all:
                    break
            if found or pages.completeness is Completeness.PARTIAL:
                break
        has_more = len(found) > 1 or pages.completeness is Completeness.TRUNCATED
        messages = [client.with_body(message) for message in (found if show_all else found[:1])]
        tracks = _tracks(client, messages, output, pattern)
    if has_more and not show_all:
        note("there may be more copies: -a shows all")
    code = print_found(
        messages, pages.completeness, output, body, save, details=True, pattern=pattern, outcomes=outcomes
    )
    _print_tracks(tracks)
    return code


def _tracks(
    client: "QueryClient", messages: "Sequence[Message]", output: OutputFormat, pattern: str | None
) -> "list[MessageTracks]":
    """What became of the messages, which mqadmin shows with each; of a table only, and only what the caller may see."""
    from reput_client import ReputClientError

    if not output.is_table or pattern is not None:
        return []
    try:
        return [
            client.track(each.offset_msg_id, limit=TRACKED_GROUP_COUNT_MAX) for each in messages[:TRACKED_COUNT_MAX]
        ]
    except ReputClientError as error:
        note(f"what became of them with each group is not known: {error.message}")
        return []


def _print_tracks(tracks: "Sequence[MessageTracks]") -> None:
    for answer in tracks:
        print(f"consumer groups of {answer.message.offset_msg_id}")
        for each in answer.tracks:
            print(f"  {each.consumer_group} {each.state.name}")
        if not answer.tracks:
            print("  none")
        if answer.has_more:
            note("there are more groups: `reput track ID` shows them")


def _is_within(message: "Message", first: "datetime | None", last: "datetime | None") -> bool:
    return (first is None or message.store_time >= first) and (last is None or message.store_time <= last)


def query_msg_by_offset(
    *,
    topic: options.Topic,
    queue_id: Annotated[int, typer.Option("--queueId", "-i", help="Queue inside the topic.")],
    queue_offset: Annotated[
        int, typer.Option("--offset", "-o", min=-(1 << 63), max=(1 << 63) - 1, help="Queue offset.")
    ],
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard; not needed with only one.")] = "",
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="How many messages from there on.")] = 1,
    after: options.After = None,
    charset: options.Charset = "utf-8",
    output: options.OutputOnly = OutputFormat.TABLE,
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

    _check_charset(charset)
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
            messages += [client.with_body(message) for message in page.items]
            if not page.items:  # the client would continue at the queue's first message
                break
        tracks = _tracks(client, messages if max_messages == 1 else (), output, pattern)
    if not messages and queue_range is not None:
        held = f"[{queue_range.min_offset}, {queue_range.max_offset})"
        warn(f"nothing at queue offset {queue_offset}: the queue holds {held}")
    # The answer to "these positions" is complete, however far the queue goes on.
    is_partial = pages.completeness is Completeness.PARTIAL
    code = print_found(
        messages,
        Completeness.PARTIAL if is_partial else Completeness.COMPLETE,
        output,
        body,
        save,
        details=max_messages == 1,
        pattern=pattern,
        charset=charset,
        outcomes=outcomes,
    )
    _print_tracks(tracks)
    return code


def query_msg_trace_by_id(
    *,
    unique_key: Annotated[str, typer.Option("--msgId", "-i", help="The producer's id, whole.")],
    trace_topic: Annotated[
        str, typer.Option("--traceTopic", "-t", help="Where clients sent their traces.")
    ] = TRACE_TOPIC,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Told at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Told at or before this.")] = None,
    max_messages: Annotated[
        int, typer.Option("--maxNum", "-c", min=1, max=TRACE_MESSAGE_COUNT_MAX, help="Trace messages that are read.")
    ] = MESSAGES_DEFAULT,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show what clients with tracing on told of a message: its sends, and how consumers ended with it.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h). The message itself may be gone. `reput track` shows
    verdicts and consumptions without an end as well.
    """
    from cli.client import query_client
    from cli.printing import print_rows
    from reput_client import Completeness, NotFoundError

    first, last = window(begin, end)
    found = TraceBody([], 0, is_cut=False)
    completeness, outcomes = Completeness.COMPLETE, Outcomes()
    with query_client(address, timeout) as client:
        for form in forms_of(unique_key):
            pages = client.by_key(trace_topic, form, first, last, page_size=PAGE_SIZE_MAX, max_messages=max_messages)
            try:
                messages, outcomes = read_all(pages)
            except NotFoundError as error:
                warn(f"no trace was sent there: {error.message}")
                return Exit.NOTHING_FOUND
            completeness = pages.completeness
            found = _traces_in((client.with_body(each) for each in messages), form)
            if found.entries or found.damaged_count or completeness is Completeness.PARTIAL:
                break
    rows = [_trace_row(each) for each in join_traces(found.entries)]
    if output.is_table:
        _print_traces(rows)
        if not rows:
            say_empty("no trace found: that says nothing of consumers")
    else:
        print_rows("traces", rows, list(rows[0]) if rows else [], output, {"damaged_count": found.damaged_count})
    if found.damaged_count:
        warn(f"{found.damaged_count} entries that name the message are damaged")
    if found.is_cut or completeness is Completeness.TRUNCATED:
        warn("there are more traces than are read: the oldest are missing")
    if completeness is Completeness.PARTIAL:
        outcomes.warn_partial()
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def _traces_in(messages: "Iterable[Message]", unique_key: str) -> TraceBody:
    """The entries of trace messages about a message; a body that cannot be unpacked counts as a damaged entry."""
    found = TraceBody([], 0, is_cut=False)
    for each in messages:
        body = inflate(each.stored_body, each.sys_flag)
        if body.note:
            found = found._replace(damaged_count=found.damaged_count + 1)
            continue
        left = TRACE_ENTRY_COUNT_MAX - len(found.entries) - found.damaged_count
        more = decode_trace_body(body.content, unique_key, each.born_host, left)
        found.entries.extend(more.entries)
        found = TraceBody(found.entries, found.damaged_count + more.damaged_count, found.is_cut or more.is_cut)
    return found


# mqadmin's names of what it prints.
_TYPES = {TraceKind.SEND: "Pub", TraceKind.AFTER_CONSUMING: "Sub"}
_TRACE_LINE = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"


def _trace_row(event: TraceEvent) -> dict[str, object]:
    """An event with mqadmin's fields: of a consumption those of its end."""
    from cli.times import iso_text, moment_of

    told = event.end or event.entry
    is_success = None if told.is_success is None else ("success" if told.is_success else "failed")
    return {
        "type": _TYPES.get(told.kind, told.kind.value),
        "group": told.group or event.entry.group,
        "client_host": told.client_host,
        "time": None
        if event.entry.time_millis is None
        else iso_text(moment_of(told.time_millis or event.entry.time_millis)),
        "cost_millis": told.cost_millis,
        "status": is_success,
        "retry_count": event.entry.retry_count,
        "verdict": told.verdict,
    }


def _print_traces(rows: "Sequence[Mapping[str, object]]") -> None:
    """The rows that mqadmin prints, as it prints them: each send, then the consumptions by group."""
    sends = [row for row in rows if row["type"] == "Pub"]
    by_group: dict[object, list[Mapping[str, object]]] = {}
    for row in rows:
        if row["type"] == "Sub":
            by_group.setdefault(row["group"], []).append(row)
    for told, who, when in [
        *(([row], "#ProducerGroup", "#SendTime") for row in sends),
        *((group, "#ConsumerGroup", "#ConsumerTime") for group in by_group.values()),
    ]:
        print(_TRACE_LINE.format("#Type", who, "#ClientHost", when, "#CostTimes", "#Status"))
        for row in told:
            host = neutralise(str(row["client_host"])).rpartition(":")[0].strip("[]")
            time = str(row["time"] or "-")[:19].replace("T", " ")
            cells = (row["type"], neutralise(str(row["group"])), host, time, f"{row['cost_millis']}ms", row["status"])
            print(_TRACE_LINE.format(*map(str, cells)))
        print()


def _check_charset(charset: str) -> None:
    import codecs

    try:
        codecs.lookup(charset)
    except LookupError:
        usage_error(f"-f {charset!r} is not a known charset", "For example: -f utf-8, -f gbk")
