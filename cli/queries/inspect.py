"""`reput topics`, `reput status`, `reput config`: the topics, the state of the services, the settings."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, usage_error, warn
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput_client import QueryClient, ServiceStatus, Topic

TIMEOUT_SECONDS = 10.0
PAGE_SIZE = 1000
ADDRESS_VARIABLE = "REPUT_ADDRESS"


def topics(
    *,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the topics with their queues and ranges."""
    from cli.client import query_client

    with query_client(address, timeout) as client:
        listed, partial = list_topics(client)
    rows = [
        {
            "topic": topic.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "min_offset": queue.min_offset,
            "max_offset": queue.max_offset,
        }
        for topic in listed
        for queue in topic.queues
    ]
    completeness = "PARTIAL" if partial else "COMPLETE"
    empty = [topic.topic for topic in listed if not topic.queues]
    _print_rows(
        "queues", rows, output, {"completeness": completeness, "topics_without_queues": empty},
        columns=["topic", "broker_name", "queue_id", "min_offset", "max_offset"],
    )  # fmt: skip
    if partial:
        warn("partial: a shard did not answer or is still building; `reput status` shows which")
        return Exit.PARTIAL
    return Exit.FOUND if listed else Exit.NOTHING_FOUND


def list_topics(client: "QueryClient") -> "tuple[list[Topic], bool]":
    """All topics over all pages, and whether some may be missing."""
    from reput_client import Completeness

    pages = client.topics(page_size=PAGE_SIZE)
    listed = list(pages)
    return listed, pages.completeness is Completeness.PARTIAL


def status(
    *,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show the state of every service behind the gateway; exit 3 when one does not answer."""
    from cli.client import query_client

    with query_client(address, timeout) as client:
        answer = client.installation()
    rows = status_rows(answer.services)
    columns = list(rows[0]) if rows else ["service"]
    _print_rows("services", rows, output, {"version": answer.version}, columns=columns)
    if all(row["answers"] for row in rows):
        return Exit.FOUND
    warn("partial: " + ", ".join(str(row["service"]) for row in rows if not row["answers"]) + " did not answer")
    return Exit.PARTIAL


def status_rows(services: "Iterable[ServiceStatus]") -> list[dict[str, Any]]:
    """A row for each service, the columns that are read most often first."""
    services = list(services)
    flushed = {service.broker_name: service.next_offset for service in services if service.service == "commitlog"}
    rows = []
    for service in services:
        is_builder = service.service != "commitlog"
        log_end_offset = max(service.log_end_offset, flushed.get(service.broker_name, 0))
        rows.append(
            {
                "broker_name": service.broker_name,
                "service": service.service,
                "state": service.state if service.error is None else "no answer",
                "problem": service.problem if service.error is None else service.error.message,
                "recovered": _recovered(service),
                "lag_bytes": max(0, log_end_offset - service.next_offset)
                if is_builder and service.error is None
                else None,
                "log_first_offset": service.log_first_offset,
                "log_end_offset": service.log_end_offset,
                "next_offset": service.next_offset,
                "catching_up": service.catching_up,
                "answers": service.error is None,
                "address": service.address,
            }
        )
    return rows


def _recovered(service: "ServiceStatus") -> str | None:
    """How much of a recovery is done, as `42 %`; None when none is running."""
    whole = service.recovery_end_offset - service.recovery_begin_offset
    if service.state != "recovering" or whole <= 0:
        return None
    return f"{(service.recovery_next_offset - service.recovery_begin_offset) * 100 // whole} %"


def config(
    *,
    config_file: Annotated[
        str | None, typer.Option("--config", help="A TOML file, or a RocketMQ broker.conf; default: REPUT_CONFIG.")
    ] = None,
    output: options.Output = OutputFormat.TABLE,
) -> int:
    """Show each setting, its value and the value's origin; then names of a broker.conf that Reput does not have."""
    from services.settings import setting_sources
    from store.errors import StoreError

    # A setting of the command: the services do not have it.
    environ = {name: value for name, value in os.environ.items() if name != ADDRESS_VARIABLE}
    try:
        rows, ignored = setting_sources.config_rows(environ=environ, config=config_file)
    except StoreError as error:
        usage_error(error.message, "Correct or remove it; `reput config` shows all names.")
    table = [
        {"name": row.setting.environment_name, "value": row.value, "unit": row.setting.unit, "origin": row.origin}
        for row in rows
    ]
    table.append(
        {
            "name": ADDRESS_VARIABLE,
            "value": os.environ.get(ADDRESS_VARIABLE) or options.DEFAULT_ADDRESS,
            "unit": "host:port",
            "origin": f"environment {ADDRESS_VARIABLE}"
            if os.environ.get(ADDRESS_VARIABLE)
            else setting_sources.DEFAULT,
        }
    )
    _print_rows("settings", table, output, {"ignored": list(ignored)}, columns=["name", "value", "unit", "origin"])
    if ignored and output is OutputFormat.TABLE:
        print("\nignored (no such setting here): " + ", ".join(ignored))
    return Exit.FOUND


def _print_rows(
    name: str, rows: list[dict[str, Any]], output: OutputFormat, more: dict[str, Any], *, columns: list[str]
) -> None:
    from cli import output as printing

    if output is OutputFormat.JSON:
        printing.print_json({name: rows, **more})
    elif output is OutputFormat.JSONL:
        printing.print_jsonl(rows)
    else:
        printing.print_table(columns, [[row[column] for column in columns] for row in rows])
