"""`reput lite`: the lite topics of a topic, and how groups stand with them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, usage_error, warn
from cli.groups import warn_missing
from cli.options import OutputFormat
from cli.times import iso_text

if TYPE_CHECKING:
    from reput_client import LiteTopic

TIMEOUT_SECONDS = 10.0
# As many as a person reads; a topic may have a million.
LISTED_COUNT = 100
COLUMNS = ["lite_topic", "broker_name", "min_offset", "max_offset", "last_store_time", "consumer_group"]
GROUP_COLUMNS = ["consumer_offset", "lag_count", "in_flight_count", "clients"]


def lite(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of the type LITE.")],
    group: Annotated[
        str, typer.Option("--group", "-g", help="Only lite topics with a position or a subscription of this group.")
    ] = "",
    part: Annotated[str, typer.Option("--name", help="Only names that hold this text.")] = "",
    lite_topic: Annotated[str, typer.Option("--lite-topic", "-l", help="Only this lite topic.")] = "",
    client_id: Annotated[
        str, typer.Option("--client", help="Only lite topics that this client of the group subscribes to.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many lite topics.")] = LISTED_COUNT,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the lite topics of a topic by name, with their groups, lag and subscribers."""
    from cli.client import query_client
    from cli.printing import print_rows

    if client_id and not group:
        usage_error("--client names a client of a group: give --group, too")
    with query_client(address, timeout) as client:
        answer = client.lite_topics(
            topic, consumer_group=group, name_contains=part, client_id=client_id, lite_topic=lite_topic, limit=limit
        )
    rows = [row for each in answer.lite_topics for row in _rows(each)]
    print_rows("lite_topics", rows, [*COLUMNS, *GROUP_COLUMNS], output)
    if answer.has_more:
        warn(f"there are more than {limit} lite topics: choose with --name TEXT or --group, or raise --limit")
    if warn_missing(answer.shards):
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def _rows(lite_topic: "LiteTopic") -> list[dict[str, Any]]:
    """One for each group; one without a group, when there is none."""
    row: dict[str, Any] = {
        "lite_topic": lite_topic.lite_topic,
        "broker_name": lite_topic.broker_name,
        "min_offset": lite_topic.min_offset,
        "max_offset": lite_topic.max_offset,
        "last_store_time": None if lite_topic.last_store_time is None else iso_text(lite_topic.last_store_time),
    }
    none = dict.fromkeys(("consumer_group", *GROUP_COLUMNS))
    return [
        row
        | {
            "consumer_group": each.consumer_group,
            "consumer_offset": each.consumer_offset,
            "lag_count": each.lag_count,
            "in_flight_count": each.in_flight_count,
            "clients": list(each.client_ids),
        }
        for each in lite_topic.groups
    ] or [row | none]
