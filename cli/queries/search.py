"""`reput search`: a scan of a topic for messages that no index can find."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.exits import note, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.queries.found import PAGE_SIZE_MAX, TIMEOUT_SECONDS, print_found, window, with_body
from cli.queries.outcomes import Outcomes

if TYPE_CHECKING:
    from reput_client import Completeness, Message, Page


def search(
    *,
    topic: options.Topic,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Its tag; when repeated, one of these.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME[=VALUE]", help="It has this property; all of them, when repeated."),
    ] = None,
    text: Annotated[str, typer.Option("--text", help="The inflated body contains this text.")] = "",
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
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Scan a topic for messages by tag, property, content of the body, or a CEL expression.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h). All conditions given must hold.
    """
    from cli.client import query_client
    from reput_client import Completeness

    if text and hex_digits:
        usage_error("--text and --hex exclude each other", "Give one as --cel \"message.body_text.contains('...')\".")
    try:
        content = text or bytes.fromhex(hex_digits)
    except ValueError as error:
        usage_error(f"--hex is not hex: {error}")
    first, last = window(begin, end)
    pairs = [
        (name, value if equals else None) for name, equals, value in (each.partition("=") for each in properties or ())
    ]
    total = _Total(page_token)
    with query_client(address, timeout) as client:
        while True:
            pages = client.search(
                topic,
                tags=tags or (),
                properties=pairs,
                body=content,
                cel=cel,
                begin=first,
                end=last,
                broker_name=broker_name,
                queue_id=queue_id,
                begin_queue_offset=begin_offset,
                end_queue_offset=end_offset,
                newest_first=newest_first,
                page_size=min(max_messages - len(total.messages), PAGE_SIZE_MAX),
                max_records=max_records and max_records - total.record_count,
                after=after or (),
                page_token=total.next_page_token,
            )
            total.add(next(pages.pages()))
            enough = len(total.messages) >= max_messages or 0 < max_records <= total.record_count
            if enough or not total.next_page_token:
                break
            note(f"{len(total.messages)} messages among {total.record_count} so far")
        messages = [with_body(client, message) for message in total.messages]
    completeness = total.completeness
    code = print_found(messages, completeness, output, body, save, details=False, outcomes=total.outcomes)
    if total.cel_error:
        warn(f"the expression has no value for {total.cel_error_count} messages; the first error: {total.cel_error}")
    if completeness is not Completeness.COMPLETE and total.next_page_token:
        warn(f"{total.record_count} positions scanned; continue with --pageToken {total.next_page_token}")
    return code


class _Total:
    """What the pages of a search have brought so far.

    Attributes:
        messages: found so far.
        next_page_token: continues behind the last page; empty at the end.
        record_count: positions scanned.
        cel_error_count: messages for which the expression has no value.
        cel_error: why it has none for the first of them.
        outcomes: how the shards took part.
    """

    def __init__(self, page_token: str) -> None:
        self.messages: list[Message] = []
        self.next_page_token = page_token
        self.record_count = 0
        self.cel_error_count = 0
        self.cel_error = ""
        self.outcomes = Outcomes()
        self._is_partial = False

    @property
    def completeness(self) -> "Completeness":
        """PARTIAL after any PARTIAL page, TRUNCATED before the last page."""
        from reput_client import Completeness

        if self._is_partial:
            return Completeness.PARTIAL
        return Completeness.TRUNCATED if self.next_page_token else Completeness.COMPLETE

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
        self._is_partial |= page.completeness is Completeness.PARTIAL
