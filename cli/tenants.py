"""`reput tenant`: what namespaces use, and the tenants file of a gateway."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, say_empty, usage_error
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput_client import Tenant

TIMEOUT_SECONDS = 10.0
COLUMNS = ["namespace", "topics", "groups", "stored_bytes", "lag_count", "messages_per_second", "bytes_per_second"]
MORE_COLUMNS = ["connections", "refused_count", "quotas"]


def list_tenants(
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only this one.")] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List namespaces with their topics, groups, stored bytes, lag, rates of the last minute, and quotas."""
    from cli.client import query_client
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        rows = [_row(each) for each in client.tenants(namespace)]
    print_rows("tenants", rows, [*COLUMNS, *MORE_COLUMNS], output, dropped_first=("quotas", "bytes_per_second"))
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def check(
    *,
    file: Annotated[pathlib.Path, typer.Option("--file", help="The tenants file of the gateway.")],
) -> int:
    """Check a tenants file before a gateway reads it, and print its quotas: namespace, quota and number."""
    from gateway.tenants.tenants_file import parse_tenants_file

    try:
        parsed = parse_tenants_file(file.read_bytes())
    except OSError as error:
        usage_error(f"{file}: {error.strerror}")
    except ValueError as error:
        usage_error(f"{file} cannot be used: {error}")
    for namespace, quotas in parsed.namespaces.items():
        for name, limit in quotas.model_dump(exclude_none=True).items():
            print(f"{namespace}\t{name}\t{limit}")
    if not parsed.namespaces:
        say_empty(f"{file} names no namespace")
        return Exit.NOTHING_FOUND
    return Exit.FOUND


def _row(tenant: "Tenant") -> dict[str, Any]:
    return {
        "namespace": tenant.namespace,
        "topics": tenant.topic_count,
        "groups": tenant.group_count,
        "stored_bytes": tenant.stored_bytes,
        "lag_count": tenant.lag_count,
        "messages_per_second": round(tenant.sent_messages_per_second, 1),
        "bytes_per_second": round(tenant.sent_bytes_per_second),
        "connections": tenant.connection_count,
        "refused_count": tenant.refused_count,
        "quotas": None if tenant.quotas is None else dict(tenant.quotas),
    }
