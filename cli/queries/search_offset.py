"""`reput searchOffset`: the position of a queue for a store time, and the time span of the queue."""

import time
from typing import Annotated

import typer

from cli import options
from cli.exits import Exit, usage_error
from cli.options import OutputFormat

TIMEOUT_SECONDS = 10.0


def search_offset(
    *,
    topic: options.Topic,
    queue_id: Annotated[int, typer.Option("--queueId", "-i", min=0, max=(1 << 31) - 1, help="Queue of the topic.")],
    moment: Annotated[str, typer.Option("--time", metavar="TIME", help="The store time to look for.")] = "now",
    upper: Annotated[
        bool, typer.Option("--upper", help="The last message stored at or before it, not the first at or after it.")
    ] = False,
    broker_name: Annotated[str, typer.Option("--brokerName", "-b", help="The shard; not needed with only one.")] = "",
    after: options.After = None,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Find a queue's position for a store time, exact to the millisecond; with the queue's range and time span.

    A time is epoch milliseconds, ISO-8601, `now`, or relative (-2h).
    """
    from cli.client import query_client
    from cli.printing import output as printing
    from cli.printing.times import iso_text, moment_of, parse_limit
    from cli.queries.outcomes import Outcomes
    from reput_client import Boundary, Completeness

    millis = parse_limit(moment, time.time_ns() // 1_000_000, is_end=upper)
    if millis is None:
        usage_error("--time is empty", "For example: --time -2h")
    boundary = Boundary.UPPER if upper else Boundary.LOWER
    with query_client(address, timeout) as client:
        answer = client.search_offset(topic, queue_id, moment_of(millis), boundary, broker_name, after or ())
    outcomes = Outcomes()
    outcomes.see(answer.shards)
    row = {
        "queue_offset": answer.queue_offset,
        "min_offset": answer.min_offset,
        "max_offset": answer.max_offset,
        "first_store_time": iso_text(answer.first_store_time) if answer.first_store_time else "",
        "last_store_time": iso_text(answer.last_store_time) if answer.last_store_time else "",
    }
    document = row | {"completeness": answer.completeness.name, "shards": outcomes.rows()}
    if output is OutputFormat.JSON:
        printing.print_json(document)
    elif output is OutputFormat.JSONL:
        printing.print_jsonl([document])
    else:
        printing.print_rows("positions", [row], list(row), output, dropped_first=["max_offset", "min_offset"])
    if answer.completeness is Completeness.PARTIAL:
        outcomes.warn_partial()
        return Exit.PARTIAL
    return Exit.FOUND
