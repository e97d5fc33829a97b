"""`reput followers`: the services that a commit log keeps its files for, and how one that is gone is removed."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, usage_error
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput.commitlog.v1.commitlog_service_pb2 import GetStatusResponse
    from services.serving.tls import TlsIdentity

TIMEOUT_SECONDS = 10.0
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
    from cli.printing.output import print_rows
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
