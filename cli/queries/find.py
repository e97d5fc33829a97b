"""`reput find`: messages by an id or key of unknown kind."""

from typing import Annotated

import typer

from cli import options
from cli.exits import say_empty
from cli.options import BodyFormat, OutputFormat
from cli.queries.found import (
    MESSAGES_DEFAULT,
    PAGE_SIZE_MAX,
    TIMEOUT_SECONDS,
    print_found,
    read_all,
    window,
)
from cli.queries.typed_ids import forms_of, why_no_key


def find(
    *,
    text: Annotated[str, typer.Argument(help="Any id or key, whole.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only in this topic.")] = "",
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
    with query_client(address, timeout, read_from.value) as client:
        for form in forms_of(text):
            pages = client.find(
                form, topic, first, last, page_size=PAGE_SIZE_MAX, after=after or (), max_matches=max_messages
            )
            matches, outcomes = read_all(pages)
            if matches or pages.completeness is Completeness.PARTIAL:
                break
        messages = [client.with_body(match.message) for match in matches]
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
    )
