"""`reput find`: messages by an id or key of unknown kind. `reput search`: a scan of topics for what no index can find."""

import functools
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import note, say_empty, usage_error, warn
from cli.messages import MESSAGES_DEFAULT, PAGE_SIZE_MAX, TIMEOUT_SECONDS, Outcomes, print_found, read_all, window
from cli.options import BodyFormat, OutputFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from reput_client import Completeness, Message, Page, QueryClient, ServiceStatus
    from reput_client.querying.queries import After
    from reput_client.querying.query_client import Pages


def find(
    *,
    text: Annotated[str, typer.Argument(help="Any id or key, whole; with --tag the tags.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only in this topic.")] = "",
    tag: Annotated[bool, typer.Option("--tag", help="Find by the tags of messages; with -t.")] = False,
    begin: Annotated[str | None, typer.Option("--begin", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before this.")] = None,
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
    """Find messages by an offsetMsgId, a unique key or a business key: whichever it is, in all topics.

    Blanks and quotes around it do not matter, nor does an id in lower case. Times are epoch milliseconds, ISO-8601, `now`,
    or relative (-2h).
    """
    from cli.client import query_client
    from reput_client import Completeness

    first, last = window(begin, end)
    if tag and not topic:
        usage_error("--tag needs a topic", "For example: reput find TagA --tag --topic Orders")
    with query_client(address, timeout, read_from.value) as client:
        if tag:
            found, completeness, shards = find_by_tag(client, topic, text, first, last, after or (), max_messages)
            tagged = [client.with_body(message) for message in found]
            return print_found(
                tagged, completeness, output, body, save, details=len(tagged) == 1, pattern=pattern, outcomes=shards
            )  # fmt: skip
        for form in forms_of(text):
            pages = client.find(
                form, topic, first, last, page_size=PAGE_SIZE_MAX, after=after or (), max_matches=max_messages
            )
            matches, outcomes = read_all(pages)
            if matches or pages.completeness is Completeness.PARTIAL:
                break
        messages = [client.with_body(match.message) for match in matches]
        held = held_text(client) if not messages and pages.completeness is Completeness.COMPLETE else ""
    if not messages and (why := why_no_key(text.strip())):
        say_empty(why)
    return print_found(
        messages,
        pages.completeness,
        output,
        body,
        save,
        details=len(messages) == 1,
        pattern=pattern,
        in_any_topic=True,
        matched_by=[match.matched_by.name.lower() for match in matches],
        outcomes=outcomes,
        empty=f"no message found. {held}".rstrip(),
    )


def held_text(client: "QueryClient") -> str:
    """Which times the store holds, in a sentence; empty when it is not known, or the caller may not know it."""
    from cli.times import iso_text, millis_of, moment_of
    from reput_client import ReputClientError
    from services.held_span import HELD, OLDER_GONE, held_span, log_spans

    def newest_millis(row: "ServiceStatus") -> int | None:
        return None if row.error or row.newest_store_time is None else millis_of(row.newest_store_time)

    def first_millis(offset_msg_id: str, broker_name: str) -> int:
        return millis_of(client.by_id(offset_msg_id, broker_name=broker_name).store_time)

    try:
        span = held_span(log_spans(client.status(), newest_millis), first_millis)
    except ReputClientError:
        return ""  # an extra of the answer
    if span is None:
        return ""
    times = {"begin": iso_text(moment_of(span.oldest_millis)), "end": iso_text(moment_of(span.newest_millis))}
    return HELD.format(**times) + f" {OLDER_GONE}" * span.has_removed


def find_by_tag(
    client: "QueryClient",
    topic: str,
    tags: str,
    first: "datetime | None",
    last: "datetime | None",
    after: "After",
    max_messages: int,
) -> "tuple[list[Message], Completeness, Outcomes]":
    """Messages with these tags: through the index where it has entries for all of them, else by a scan of the topic."""
    from reput_client import Completeness, ReputClientError

    try:
        pages = client.by_tag(topic, tags, first, last, page_size=PAGE_SIZE_MAX, after=after, max_messages=max_messages)
        found, outcomes = read_all(pages)
        if pages.completeness is not Completeness.PARTIAL:
            return found, pages.completeness, outcomes
    except ReputClientError as error:
        if error.reason != "UNSUPPORTED_STORE":
            raise
    scanned = client.search(
        topic, tags=[tags], begin=first, end=last, newest_first=True, page_size=PAGE_SIZE_MAX, after=after,
        max_messages=max_messages,
    )  # fmt: skip
    found, outcomes = read_all(scanned)
    return found, scanned.completeness, outcomes


QUOTES = (("'", "'"), ('"', '"'), ("`", "`"), ("‘", "’"), ("“", "”"), ("«", "»"), ("「", "」"))
# Unique keys that RocketMQ's clients make, and offsetMsgIds, have these many hex digits, in upper case.
_LOWER_ID = re.compile(r"(?=.*[a-f])[0-9a-f]+")
_ID_LENGTHS = (32, 34, 56)
OFFSET_MSG_ID_LENGTHS = (32, 56)


def typed_id(text: str) -> str:
    """The id or key without the blanks and the quotes around it."""
    text = text.strip()
    for opening, closing in QUOTES:
        if len(text) > 2 and text[0] == opening and text[-1] == closing:
            return typed_id(text[1:-1])
    return text


def typed_ids(text: str) -> list[str]:
    """The ids of a list with commas, each once."""
    return list(dict.fromkeys(found for part in typed_id(text).split(",") if (found := typed_id(part))))


def forms_of(text: str) -> list[str]:
    """The forms of a typed id or key, the likeliest first: as typed, without quotes around it, in upper case."""
    bare = typed_id(text)
    upper = [bare.upper()] if len(bare) in _ID_LENGTHS and _LOWER_ID.fullmatch(bare) else []
    return list(dict.fromkeys([text.strip() or text, bare, *upper]))


def is_offset_msg_id(text: str) -> bool:
    """Whether the text may be an offsetMsgId."""
    return len(text) in OFFSET_MSG_ID_LENGTHS and re.fullmatch(r"[0-9A-Fa-f]+", text) is not None


def why_no_key(text: str) -> str:
    """Why no message can have this key; empty when one can."""
    if " " not in text:
        return ""
    return f"a key cannot hold a space, because spaces separate the keys of a message: ask for one of {text.split()}"


def search(
    *,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Topic name; without it, all topics except RocketMQ's own.")
    ] = "",
    tags: options.Tags = None,
    properties: options.Properties = None,
    text: options.Text = "",
    ignore_case: options.IgnoreCase = False,
    hex_digits: Annotated[str, typer.Option("--hex", help="The inflated body contains these bytes.")] = "",
    cel: Annotated[
        str, typer.Option("--cel", help="A CEL expression over `message`, such as message.body_text.matches('a+').")
    ] = "",
    queue_id: Annotated[int | None, typer.Option("--queueId", "-i", help="Only this queue.")] = None,
    begin_offset: Annotated[int | None, typer.Option("--fromOffset", help="From this queue offset on.")] = None,
    end_offset: Annotated[int | None, typer.Option("--toOffset", help="Before this queue offset.")] = None,
    broker_name: Annotated[str, typer.Option("--brokerName", help="Only this shard.")] = "",
    begin: Annotated[str | None, typer.Option("--begin", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before this.")] = None,
    newest_first: Annotated[bool, typer.Option("--newest", help="Scan each queue from its end.")] = False,
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="Stop after this many messages.")] = 64,
    max_records: Annotated[
        int, typer.Option("--maxRecords", min=0, help="Stop after scanning this many; 0: at the end.")
    ] = 0,
    page_token: Annotated[str, typer.Option("--pageToken", help="Continue where an earlier search stopped.")] = "",
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    pattern: options.Pattern = None,
    save: options.Save = None,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Scan a topic, or all of them, for messages by tag, property, content of the body, or a CEL expression.

    It answers queue after queue (shards by name, queues by number), each oldest first, or with --newest newest first: not by
    time across queues. Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h). All conditions given must hold.
    """
    from cli.client import query_client
    from cli.topics import is_rocketmqs_own, list_topics
    from reput_client import Completeness

    if text and hex_digits:
        usage_error("--text and --hex exclude each other", "Give one as --cel \"message.body_text.contains('...')\".")
    if ignore_case and not text:
        usage_error("--ignore-case is for --text")
    if not topic and (page_token or queue_id is not None):
        usage_error("--pageToken and --queueId need -t TOPIC", "`reput topics` lists the topics.")
    try:
        content = text or bytes.fromhex(hex_digits)
    except ValueError as error:
        usage_error(f"--hex is not hex: {error}")
    if ignore_case:
        content, cel = "", both(cel, body_ignoring_case(text))
    first, last = window(begin, end)
    total = _Total(page_token)
    with query_client(address, timeout, read_from.value) as client:
        if topic:
            names = [topic]
        else:
            listed, total.is_partial = list_topics(client)
            names = [each.topic for each in listed if not is_rocketmqs_own(each)]
        search_topic = functools.partial(
            client.search,
            tags=tags or (),
            properties=property_pairs(properties),
            body=content,
            cel=cel,
            begin=first,
            end=last,
            broker_name=broker_name,
            queue_id=queue_id,
            begin_queue_offset=begin_offset,
            end_queue_offset=end_offset,
            newest_first=newest_first,
            after=after or (),
        )
        name = _search_topics(search_topic, names, total, max_messages, max_records)
        messages = [client.with_body(message) for message in total.messages]
    completeness = total.completeness
    code = print_found(
        messages, completeness, output, body, save,
        details=False, pattern=pattern, in_any_topic=not topic, outcomes=total.outcomes, order=_order(newest_first),
    )  # fmt: skip
    if total.cel_error:
        warn(f"the expression has no value for {total.cel_error_count} messages; the first error: {total.cel_error}")
    if completeness is not Completeness.COMPLETE and total.next_page_token:
        go_on = f"continue with {'' if topic else f'-t {name} '}--pageToken {total.next_page_token}"
        warn(f"{total.record_count} positions scanned; {go_on}")
    if total.is_cut_short:
        warn(f"{len(names) - names.index(name) - 1} topics behind {name} were not searched")
    return code


def _order(newest_first: bool) -> str:
    return f"in the order of the queues, each {'newest' if newest_first else 'oldest'} first; not by time across queues"


def _search_topics(
    search_topic: "Callable[..., Pages[Message]]",
    names: "Sequence[str]",
    total: "_Total",
    max_messages: int,
    max_records: int,
) -> str:
    """Searches one topic after the other until there is enough; the last one that it has asked for."""
    name = ""
    for name in names:
        while True:
            pages = search_topic(
                name,
                page_size=min(max_messages - len(total.messages), PAGE_SIZE_MAX),
                max_records=max_records and max_records - total.record_count,
                page_token=total.next_page_token,
            )
            total.add(next(pages.pages()))
            if len(total.messages) >= max_messages or 0 < max_records <= total.record_count:
                total.is_cut_short = name != names[-1]
                return name
            if not total.next_page_token:
                break
            note(f"{len(total.messages)} messages among {total.record_count} so far")
    return name


class _Total:
    """The sum over the pages of a search so far.

    Attributes:
        messages: found so far.
        next_page_token: continues behind the last page; empty at the end.
        record_count: positions scanned.
        cel_error_count: messages for which the expression has no value.
        cel_error: why it has none for the first of them.
        outcomes: how the shards took part.
        is_partial: matches may be missing.
        is_cut_short: topics are left that were not searched.
    """

    def __init__(self, page_token: str) -> None:
        self.messages: list[Message] = []
        self.next_page_token = page_token
        self.record_count = 0
        self.cel_error_count = 0
        self.cel_error = ""
        self.outcomes = Outcomes()
        self.is_partial = False
        self.is_cut_short = False

    @property
    def completeness(self) -> "Completeness":
        """PARTIAL after any PARTIAL page, TRUNCATED before the last page of the last topic."""
        from reput_client import Completeness

        if self.is_partial:
            return Completeness.PARTIAL
        return Completeness.TRUNCATED if self.next_page_token or self.is_cut_short else Completeness.COMPLETE

    def add(self, page: "Page[Message]") -> None:
        """Add a page."""
        from reput_client import Completeness

        assert page.scan is not None, "a page of a search says what was scanned"
        self.messages += page.items
        self.next_page_token = page.next_page_token
        self.record_count += page.scan.record_count
        self.cel_error_count += page.scan.cel_error_count
        self.cel_error = self.cel_error or page.scan.cel_error
        self.outcomes.see(page.shards)
        self.is_partial |= page.completeness is Completeness.PARTIAL


def property_pairs(typed: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """Names and values of `NAME=VALUE`; None for the value of a plain `NAME`, which any value fits."""
    parts = [each.partition("=") for each in typed or ()]
    return [(name, value if equals else None) for name, equals, value in parts]


def body_ignoring_case(text: str) -> str:
    """CEL: the body holds this text, upper and lower case being the same."""
    return f"message.body_text.matches({_cel_text('(?is)' + re.escape(text))})"


def has_key(key: str) -> str:
    """CEL: this is one of the message's keys."""
    return f"{_cel_text(key)} in message.keys"


def both(*conditions: str) -> str:
    """CEL: all of these hold; empty ones are left out."""
    given = [each for each in conditions if each]
    return given[0] if len(given) == 1 else " && ".join(f"({each})" for each in given)


def _cel_text(text: str) -> str:
    """A text as CEL writes it: its escapes are a superset of JSON's."""
    return json.dumps(text, ensure_ascii=False)
