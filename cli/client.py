"""The command's clients of a gateway (`reput_client`); a failed call becomes an exit code, a message and advice."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import grpc

from cli.exits import CliError, Exit, usage_error
from cli.security_flags import given_security
from reput_client import ReputClientError, RetryPolicy

if TYPE_CHECKING:
    from reput_client import AdminClient, AppendClient, QueryClient

# A person repeats a failed command; a script wants to know of the failure soon.
ONE_ATTEMPT = RetryPolicy(attempt_count_max=1)
EXIT_BY_CODE = {
    grpc.StatusCode.NOT_FOUND: Exit.NOTHING_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE,
    grpc.StatusCode.OUT_OF_RANGE: Exit.NOTHING_FOUND,
    grpc.StatusCode.ALREADY_EXISTS: Exit.USAGE,
}
ADVICE_BY_REASON = {
    "TOPIC_NOT_FOUND": "`reput topics` lists the topics.",
    "TOPIC_EXISTS": "`reput topic update` changes it.",
    "QUEUE_NOT_FOUND": "`reput topics` lists the queues of each topic.",
    "BROKER_NOT_FOUND": "`reput status` lists the shards by name (-b NAME).",
    "GROUP_NOT_FOUND": "`reput groups` lists the consumer groups.",
    "SCHEDULED_MESSAGE_NOT_FOUND": "`reput scheduled` lists the messages that wait.",
    "TRANSACTION_NOT_FOUND": "`reput transactions` lists the half messages that wait.",
    "RECORD_NOT_FOUND": "Retention may have removed the record, or the id belongs to another store.",
    "INVALID_MESSAGE_ID": (
        "An offsetMsgId has 32 or 56 hex digits; for a producer's id use queryMsgByUniqueKey -t TOPIC -i ID."
    ),
    "INVALID_PAGE_TOKEN": "Start the query again.",
    "INVALID_FRESHNESS_TOKEN": "--after takes the freshness_token that `reput send` printed, for the same store.",
    "STORE_READ_ONLY": "Serve the store without --read-only, --follow and --mirror to append.",
    "STORE_RECOVERING": "The store is reading its log after a start: try again soon.",
    "SERVICE_UNAVAILABLE": "`reput status` shows which service does not answer.",
    "DISK_FULL": "Free some space under the store, then send again.",
    "FLUSH_FAILED": "The outcome is unknown and the store is fenced: check the disk, restart the services, send again.",
    "LOG_FILE_LOST": "The store is fenced: put the log's file back, restart the services, send again.",
    "RECORD_CORRUPTED": "The store is damaged at that offset: restore it from a copy, and check the disk.",
    "STORE_CORRUPTED": "The store is damaged at that offset: restore it from a copy, and check the disk.",
    "RESOURCE_BUSY": "Try again soon.",
    "UNAUTHENTICATED": "Give an API key by REPUT_API_KEY, or a key or JWT by --token-file FILE.",
    "PERMISSION_DENIED": "The gateway's access file says which client may do what; its operator can change it.",
}
ADVICE_BY_CODE = {
    grpc.StatusCode.UNAVAILABLE: (
        "Is the gateway running there? `reput serve --store DIR` starts one; --address names another."
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "Allow more time with --timeout SECONDS, or ask for less with -m.",
    grpc.StatusCode.UNIMPLEMENTED: "There is no Reput gateway at that address, or an older one.",
}

Client = TypeVar("Client", "QueryClient", "AppendClient", "AdminClient")


def query_client(
    address: str, timeout_seconds: float, read_from: str = "default"
) -> "contextlib.AbstractContextManager[QueryClient]":
    """A client for queries; inside the block a failed call is raised as a `CliError`.

    Args:
        address: the gateway.
        timeout_seconds: of a call.
        read_from: which replicas answer: the name of a ReadFrom.
    """
    from reput_client import QueryClient, ReadChoice, ReadFrom

    make = partial(QueryClient, read=ReadChoice(ReadFrom[read_from.upper()]))
    return _open(make, address, timeout_seconds)


def append_client(address: str, timeout_seconds: float) -> "contextlib.AbstractContextManager[AppendClient]":
    """A client that appends; inside the block a failed call is raised as a `CliError`."""
    from reput_client import AppendClient

    return _open(AppendClient, address, timeout_seconds)


def admin_client(address: str, timeout_seconds: float) -> "contextlib.AbstractContextManager[AdminClient]":
    """A client that administers; inside the block a failed call is raised as a `CliError`."""
    from reput_client import AdminClient

    return _open(AdminClient, address, timeout_seconds)


@contextlib.contextmanager
def _open(make: Callable[..., Client], address: str, timeout_seconds: float) -> Iterator[Client]:
    try:
        client = make(address, security=given_security(), timeout_seconds=timeout_seconds, retry=ONE_ATTEMPT)
    except (OSError, ValueError) as error:
        usage_error(str(error), "`reput VERB --help` lists the flags for TLS and keys.")
    with client:
        try:
            yield client
        except ReputClientError as error:
            raise failure_of(error, address) from error


def failure_of(error: ReputClientError, address: str) -> CliError:
    """The failure as exit code, reason, message and advice."""
    code = error.code or grpc.StatusCode.UNKNOWN
    reason = error.reason or code.name
    message = error.message
    if reason == code.name == "UNAVAILABLE":
        message = f"no answer from {address}: {message}"
    advice = ADVICE_BY_REASON.get(reason) or ADVICE_BY_CODE.get(code, "")
    return CliError(EXIT_BY_CODE.get(code, Exit.UNAVAILABLE), reason, message, advice)
