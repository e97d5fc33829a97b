"""`reput search`: a scan for what no index knows."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cli import options, query
from cli.exits import note, usage_error, warn
from cli.options import BodyFormat, OutputFormat
from cli.outcomes import Outcomes


def search(
    *,
    topic: options.Topic,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="TAGS is this; one of these when repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME[=VALUE]", help="Has this property; all of these.")
    ] = None,
    text: Annotated[str, typer.Option("--text", help="The inflated body holds this text.")] = "",
    hex_digits: Annotated[str, typer.Option("--hex", help="The inflated body holds these bytes.")] = "",
    cel: Annotated[
        str, typer.Option("--cel", help="A CEL expression over `message`, such as message.body_text.matches('a+').")
    ] = "",
    queue_id: Annotated[int | None, typer.Option("--queueId", "-i", help="Only this queue.")] = None,
    begin_offset: Annotated[int | None, typer.Option("--fromOffset", help="From this queue offset on.")] = None,
    end_offset: Annotated[int | None, typer.Option("--toOffset", help="Up to this queue offset, without it.")] = None,
    broker_name: Annotated[str, typer.Option("--brokerName", help="Only this shard.")] = "",
    begin: Annotated[str | None, typer.Option("--begin", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before this.")] = None,
    newest_first: Annotated[bool, typer.Option("--newest", help="Each queue from its end.")] = False,
    max_messages: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="Stop after so many.")] = 64,
    max_records: Annotated[
        int, typer.Option("--maxRecords", min=0, help="Stop after looking at so many; 0: at the end.")
    ] = 0,
    page_token: Annotated[str, typer.Option("--pageToken", help="Go on where an earlier search stopped.")] = "",
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = query.TIMEOUT_SECONDS,
) -> int:
    """Scan a topic for messages by tag, property, what their bodies hold, or any CEL expression.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h). All conditions given must hold.
    """
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb
    from reput.message.v1 import message_pb2

    if text and hex_digits:
        usage_error("--text and --hex exclude one another", "One as --cel \"message.body_text.contains('...')\".")
    request = pb.SearchMessagesRequest(
        topic=topic,
        broker_name=broker_name,
        queue_id=queue_id,
        begin_queue_offset=begin_offset,
        end_queue_offset=end_offset,
        order=pb.SEARCH_ORDER_NEWEST_FIRST if newest_first else pb.SEARCH_ORDER_OLDEST_FIRST,
        tags=tags or [],
        properties=map(_property, properties or []),
        cel=cel,
        page_token=page_token,
        freshness_tokens=after or [],
    )
    if text:
        request.body_text = text
    if hex_digits:
        request.body_hex = hex_digits
    query._set_window(request, begin, end)
    with gateway(address) as stub:
        pages = _Pages(stub, request, max_messages, max_records, timeout)
        messages = [query._with_body(stub, message, timeout) for message in pages]
    code = query._print_found(messages, pages.completeness, output, body, save, details=False, outcomes=pages.outcomes)
    if pages.cel_error:
        warn(f"the expression has no value for {pages.cel_error_count} messages, the first because: {pages.cel_error}")
    if pages.completeness != message_pb2.COMPLETENESS_COMPLETE and pages.next_page_token:
        warn(f"{pages.record_count} positions looked at; go on with --pageToken {pages.next_page_token}")
    return code


def _property(text: str) -> Any:
    from reput.gateway.v1 import gateway_service_pb2 as pb

    name, equals, value = text.partition("=")
    return pb.SearchMessagesRequest.Property(name=name, value=value if equals else None)


class _Pages:
    """The messages of a search, page by page.

    Attributes:
        completeness: of the whole, once iterated.
        next_page_token: goes on behind it; empty at the end.
        record_count: positions looked at.
        cel_error_count: messages for which the expression had no value.
        cel_error: why it had none for the first of them.
        outcomes: how the shards took part.
    """

    def __init__(self, stub: Any, request: Any, messages_max: int, records_max: int, timeout: float) -> None:
        self.completeness = query._complete()
        self.next_page_token = ""
        self.record_count = 0
        self.cel_error_count = 0
        self.cel_error = ""
        self.outcomes = Outcomes()
        self._stub = stub
        self._request = request
        self._messages_max = messages_max
        self._records_max = records_max
        self._timeout = timeout

    def __iter__(self) -> Iterator[Any]:
        from reput.message.v1 import message_pb2

        count = 0
        partial = False
        while True:
            self._request.page_size = min(self._messages_max - count, query.PAGE_SIZE_MAX)
            self._request.max_records = self._records_max and self._records_max - self.record_count
            answer = self._stub.SearchMessages(self._request, timeout=self._timeout)
            partial |= answer.completeness == message_pb2.COMPLETENESS_PARTIAL
            self.outcomes.see(answer.shards)
            count += len(answer.messages)
            self.record_count += answer.scanned_record_count
            self.cel_error_count += answer.cel_error_count
            self.cel_error = self.cel_error or answer.cel_error
            self.next_page_token = self._request.page_token = answer.next_page_token
            yield from answer.messages
            enough = count >= self._messages_max or 0 < self._records_max <= self.record_count
            if enough or not answer.next_page_token:
                break
            note(f"{count} messages among {self.record_count} so far")
        if partial:
            self.completeness = message_pb2.COMPLETENESS_PARTIAL
        elif answer.next_page_token:
            self.completeness = message_pb2.COMPLETENESS_TRUNCATED
