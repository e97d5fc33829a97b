"""`reput find`: a text of which nobody knows what it is."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cli import options, query
from cli.exits import note
from cli.options import BodyFormat, OutputFormat
from cli.outcomes import Outcomes


def find(
    *,
    text: Annotated[str, typer.Argument(help="Any id or key, whole.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only in this topic.")] = "",
    begin: Annotated[str | None, typer.Option("--begin", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[
        int, typer.Option("--maxNum", "-m", min=1, help="At most so many.")
    ] = query.MESSAGES_DEFAULT,
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    body: options.Body = BodyFormat.AUTO,
    save: options.Save = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = query.TIMEOUT_SECONDS,
) -> int:
    """Find messages by an offsetMsgId, a unique key or a business key: whichever it is, in all topics.

    Times are epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli.client import gateway
    from reput.gateway.v1 import gateway_service_pb2 as pb

    request = pb.FindMessageRequest(text=text, topic=topic, freshness_tokens=after or [])
    query._set_window(request, begin, end)
    messages, matched_by = [], []
    with gateway(address) as stub:
        pages = _Pages(stub, request, max_messages, timeout)
        for match in pages:
            messages.append(query._with_body(stub, match.message, timeout))
            matched_by.append(pb.MatchedBy.Name(match.matched_by).removeprefix("MATCHED_BY_").lower())
    return query._print_found(
        messages,
        pages.completeness,
        output,
        body,
        save,
        details=len(messages) == 1,
        extra={"matched_by": matched_by},
        outcomes=pages.outcomes,
    )


class _Pages:
    """The matches of a find, page by page, up to a number.

    Attributes:
        completeness: of the whole, once iterated.
        outcomes: how the shards took part.
    """

    def __init__(self, stub: Any, request: Any, messages_max: int, timeout: float) -> None:
        self.completeness = query._complete()
        self.outcomes = Outcomes()
        self._stub = stub
        self._request = request
        self._messages_max = messages_max
        self._timeout = timeout

    def __iter__(self) -> Iterator[Any]:
        from reput.message.v1 import message_pb2

        count = 0
        partial = False
        while True:
            self._request.page_size = min(self._messages_max - count, query.PAGE_SIZE_MAX)
            answer = self._stub.FindMessage(self._request, timeout=self._timeout)
            self.outcomes.see(answer.shards)
            partial |= answer.completeness == message_pb2.COMPLETENESS_PARTIAL
            yield from answer.matches
            count += len(answer.matches)
            if count >= self._messages_max or not answer.next_page_token:
                break
            self._request.page_token = answer.next_page_token
            note(f"{count} messages so far")
        if partial:
            self.completeness = message_pb2.COMPLETENESS_PARTIAL
        elif answer.next_page_token:
            self.completeness = message_pb2.COMPLETENESS_TRUNCATED
