"""queryMsgByKey, queryMsgById, queryMsgByUniqueKey and queryMsgByOffset, with mqadmin's flags (`cli.mqadmin.command_line`)."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import Exit, note, usage_error, warn
from cli.find import find_by_tag, forms_of, typed_ids, why_no_key
from cli.messages import MESSAGES_DEFAULT, PAGE_SIZE_MAX, TIMEOUT_SECONDS, Outcomes, print_found, read_all, window
from cli.options import BodyFormat, OutputFormat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from reput_client import Message, MessageTracks, QueryClient


# Messages whose consumer groups are shown: each costs a call that asks every shard.
TRACKED_COUNT_MAX = 16
TRACKED_GROUP_COUNT_MAX = 100


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
    from commitlog_svc.append.message_check import REFUSED_PROPERTIES
    from reput_client import NewMessage
    from store.format.properties import WAITING_PROPERTIES

    left_out = {*REFUSED_PROPERTIES, *WAITING_PROPERTIES}
    copies = [
        NewMessage(
            each.topic,
            each.body,
            keys=each.keys,
            tags=each.tags,
            properties={name: value for name, value in each.properties.items() if name not in left_out},
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


def _check_charset(charset: str) -> None:
    import codecs

    try:
        codecs.lookup(charset)
    except LookupError:
        usage_error(f"-f {charset!r} is not a known charset", "For example: -f utf-8, -f gbk")
