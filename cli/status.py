"""`reput status`, `reput config` and `reput followers`: the state of the services, their settings, and the services that a
commit log keeps its files for.
"""

import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, usage_error, warn
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput.commitlog.v1.commitlog_service_pb2 import GetStatusResponse
    from reput_client import ReplicaStatus, ServiceStatus
    from services.serving.tls import TlsIdentity

TIMEOUT_SECONDS = 10.0
# Columns of services that a narrow terminal leaves out, the first one first.
STATUS_DROPPED_FIRST = (
    *("address", "answers", "log_first_offset", "log_end_offset", "next_offset", "catching_up"),
    *("transactions", "scheduled", "clients", "groups", "in_flight", "recovered", "problem"),
)
ADDRESS_VARIABLE = "REPUT_ADDRESS"


def status(
    *,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show the state of every service behind the gateway; exit 3 when one does not answer."""
    from cli.client import query_client
    from cli.printing import print_rows
    from cli.terminal import one_line

    with query_client(address, timeout) as client:
        answer = client.installation()
    rows = status_rows(answer.services)
    columns = list(rows[0]) if rows else ["service"]
    replicas = replica_rows(answer.services)
    features = feature_rows(answer.services)
    nameservers = nameserver_rows(answer.services)
    extra = {"version": answer.version} | ({"replicas": replicas} if replicas else {})
    extra |= {"features": features} if features else {}
    extra |= {"nameservers": nameservers} if nameservers else {}
    print_rows("services", rows, columns, output, extra, dropped_first=STATUS_DROPPED_FIRST)
    if replicas and output.is_table:
        print()
        print_rows("replicas", replicas, list(replicas[0]), output)
    if output.is_table:
        for row in features:
            print(one_line(f"{row['broker_name']}: the store uses {row['feature']}"))
        for row in nameservers:
            told = f"tells RocketMQ's clients {row['broker_address']}" if row["registered"] else "is not told of it yet"
            print(one_line(f"{row['broker_name']}: name server {row['nameserver']} {told}"))
    if all(row["answers"] for row in rows):
        return Exit.FOUND
    warn("partial: " + ", ".join(str(row["service"]) for row in rows if not row["answers"]) + " did not answer")
    return Exit.PARTIAL


def status_rows(services: "Iterable[ServiceStatus]") -> list[dict[str, Any]]:
    """A row for each service, the columns that are read most often first."""
    services = list(services)
    flushed = {service.broker_name: service.next_offset for service in services if service.service == "commitlog"}
    are_replicas = any(service.role for service in services)
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
                else service.followed_lag_bytes,
                "lag_seconds": service.followed_lag_seconds,
                "log_first_offset": service.log_first_offset,
                "log_end_offset": service.log_end_offset,
                "next_offset": service.next_offset,
                "catching_up": service.catching_up,
                **_counts(service),
                **(_role(service) if are_replicas else {}),
                "answers": service.error is None,
                "address": service.address,
            }
        )
    return rows


def feature_rows(services: "Iterable[ServiceStatus]") -> list[dict[str, str]]:
    """A row for each feature of a store that is not wholly supported (docs/features.md)."""
    return [
        {"broker_name": service.broker_name, "feature": feature} for service in services for feature in service.features
    ]


def nameserver_rows(services: "Iterable[ServiceStatus]") -> list[dict[str, Any]]:
    """A row for each name server of RocketMQ at which a shard registers."""
    return [
        {
            "broker_name": service.broker_name,
            "nameserver": address,
            "registered": is_registered,
            "broker_address": service.broker_address,
        }
        for service in services
        for address, is_registered in sorted(service.nameservers.items())
    ]


def replica_rows(services: "Iterable[ServiceStatus]") -> list[dict[str, Any]]:
    """A row for each replica that a leader knows."""
    return [
        {
            "broker_name": service.broker_name,
            "replica": one.replica,
            "role": "leader" if one.replica == service.replica else "follower" if one.connected else "away",
            "in_sync": one.in_sync,
            "lag_bytes": one.lag_bytes,
            "lag_millis": one.lag_millis,
            "fetched": _fetched(one),
        }
        for service in services
        for one in service.replicas
    ]


def _fetched(replica: "ReplicaStatus") -> str | None:
    """How far a replica is that is far behind, such as `40 %, 312 MB/s`."""
    if not replica.fetch_total_bytes:
        return None
    percent = min(100, 100 * replica.fetched_bytes // replica.fetch_total_bytes)
    return f"{percent} %, {replica.fetched_bytes_per_second / 1e6:.0f} MB/s"


def _role(service: "ServiceStatus") -> dict[str, Any]:
    """Which replica of its shard a commit log is."""
    return {"replica": service.replica or None, "role": service.role or None, "epoch": service.epoch or None}


def _counts(service: "ServiceStatus") -> dict[str, int | None]:
    """The counts of a consumer or schedule service; None for other services and for one that does not answer."""
    answered = service.service if service.error is None else ""
    return {
        "groups": service.group_count if answered == "consumer" else None,
        "in_flight": service.in_flight_count if answered == "consumer" else None,
        "clients": service.client_count if answered == "consumer" else None,
        "scheduled": service.scheduled_count if answered == "schedule" else None,
        "transactions": service.transaction_count if answered == "schedule" else None,
    }


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
    from cli.printing import print_rows
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
    print_rows("settings", table, ["name", "value", "unit", "origin"], output, {"ignored": list(ignored)})
    if ignored and output.is_table:
        print("\nignored (no such setting here): " + ", ".join(ignored))
    return Exit.FOUND


COMMITLOG_DEFAULT = "127.0.0.1:8082"
COLUMNS = ["follower", "expected", "state", "next_offset", "lag_bytes"]


def followers(
    *,
    commitlog: Annotated[
        str,
        typer.Option(
            "--commitlog", envvar="REPUT_COMMITLOG_TARGET", help="The commitlog service, HOST:PORT or unix:/path."
        ),
    ] = COMMITLOG_DEFAULT,
    remove: Annotated[
        str, typer.Option("--remove", metavar="NAME", help="Remove a registered follower that is gone.")
    ] = "",
    output: options.Output = OutputFormat.TABLE,
    timeout: options.Timeout = TIMEOUT_SECONDS,
    certificate: Annotated[
        pathlib.Path | None,
        typer.Option("--tls-cert", metavar="FILE", envvar="REPUT_TLS_CERTIFICATE", help="Own certificate."),
    ] = None,
    key: Annotated[
        pathlib.Path | None,
        typer.Option("--tls-key", metavar="FILE", envvar="REPUT_TLS_KEY", help="Its private key."),
    ] = None,
    ca: Annotated[
        pathlib.Path | None,
        typer.Option("--tls-ca", metavar="FILE", envvar="REPUT_TLS_CA", help="Authority of the services."),
    ] = None,
) -> int:
    """List the followers that retention waits for, or remove one that is gone; asks one commitlog service."""
    from cli.printing import print_rows
    from reput.commitlog.v1 import commitlog_service_pb2 as pb
    from services.calling.commitlog import CommitLogClient
    from services.rpcs import commitlog as rpc
    from store.errors import FollowerNotFoundError, InvalidArgumentError, InvalidSettingError, StoreError

    try:
        client = CommitLogClient(commitlog, tls=tls_identity(certificate, key, ca))
        try:
            if remove:
                # Never again: the second attempt would find no follower, and say that nothing was done.
                client.call_once(rpc.REMOVE_FOLLOWER, pb.RemoveFollowerRequest(name=remove), timeout)
            status = client.call(rpc.GET_STATUS, pb.GetStatusRequest(), timeout)
        finally:
            client.close()
    except FollowerNotFoundError as error:
        raise CliError(Exit.NOTHING_FOUND, error.reason(), error.message) from error
    except (InvalidArgumentError, InvalidSettingError) as error:
        usage_error(error.message)
    except StoreError as error:
        hint = (
            "--commitlog names the commitlog service; one of `reput serve` has a port with REPUT_COMMITLOG_ADDRESS, "
            "or else the socket that is written by --port-file."
        )
        raise CliError(Exit.UNAVAILABLE, error.reason(), error.message, hint) from error
    print_rows("followers", follower_rows(status), COLUMNS, output)
    return Exit.FOUND


def follower_rows(status: "GetStatusResponse") -> list[dict[str, Any]]:
    """A row for each follower in a commit log's status."""
    from services.convert import confirm_offset

    rows = []
    for follower in status.followers:
        next_offset = follower.next_offset if follower.HasField("next_offset") else None
        state = "not reported" if next_offset is None else "off" if next_offset < 0 else "following"
        # A follower that has not reported needs the whole log.
        needed_offset = status.log_first_offset if next_offset is None else next_offset
        rows.append(
            {
                "follower": follower.name,
                "expected": follower.expected,
                "state": state,
                "next_offset": next_offset,
                "lag_bytes": None if state == "off" else max(0, confirm_offset(status) - needed_offset),
            }
        )
    return rows


def tls_identity(
    certificate: pathlib.Path | None, key: pathlib.Path | None, ca: pathlib.Path | None
) -> "TlsIdentity | None":
    """With what a command calls the services; None: without TLS."""
    if certificate is None and key is None and ca is None:
        return None
    if certificate is None or key is None or ca is None:
        usage_error("--tls-cert, --tls-key and --tls-ca are given together or not at all")
    from services.serving.tls import TlsIdentity
    from services.settings.certificates import TlsFiles

    return TlsIdentity(TlsFiles(certificate, key, ca))
