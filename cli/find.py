"""`reput find`: a text of which nobody knows what it is."""

from functools import partial
from typing import Annotated

import typer

from cli import options, query
from cli.options import BodyFormat, OutputFormat


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
        pages = query._Pages(partial(stub.FindMessage, timeout=timeout), request, max_messages, field="matches")
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
