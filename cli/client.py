"""The command's line to a gateway: one channel, one deadline a call, and statuses turned into exit codes and advice."""

import contextlib
from collections.abc import Iterator

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from cli.exits import CliError, Exit, usage_error
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc

RECEIVE_BYTES_MAX = 16 * 1024 * 1024
EXIT_BY_CODE = {
    grpc.StatusCode.NOT_FOUND: Exit.NOTHING_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE,
    grpc.StatusCode.OUT_OF_RANGE: Exit.NOTHING_FOUND,
}
ADVICE_BY_REASON = {
    "TOPIC_NOT_FOUND": "`reput topics` lists the topics that are there.",
    "QUEUE_NOT_FOUND": "`reput topics` lists the queues of each topic.",
    "BROKER_NOT_FOUND": "`reput status` lists the shards by name (-b NAME).",
    "RECORD_NOT_FOUND": "The record may have been retired, or the id belongs to another store.",
    "INVALID_MESSAGE_ID": (
        "An offsetMsgId has 32 or 56 hex digits; for a producer's id use queryMsgByUniqueKey -t TOPIC -i ID."
    ),
    "INVALID_PAGE_TOKEN": "Start the query again.",
    "INVALID_FRESHNESS_TOKEN": "--after takes the freshness_token that `reput send` printed, for the same store.",
    "STORE_READ_ONLY": "Serve the store without --read-only to append.",
    "STORE_RECOVERING": "The store is reading its log after a start: try again soon.",
    "SERVICE_UNAVAILABLE": "`reput status` shows which service does not answer.",
    "DISK_FULL": "Free some space under the store, then send again.",
    "FLUSH_FAILED": "The outcome is unknown and the store is fenced: check the disk, restart the services, send again.",
    "RECORD_CORRUPTED": "The store is damaged at that offset: restore it from a copy, and check the disk.",
    "STORE_CORRUPTED": "The store is damaged at that offset: restore it from a copy, and check the disk.",
    "RESOURCE_BUSY": "Try again soon.",
    "UNAUTHENTICATED": "Give an API key by REPUT_API_KEY, or a key or JWT by --token-file FILE.",
    "PERMISSION_DENIED": "Whoever runs the gateway says in its access file who may do what.",
}
ADVICE_BY_CODE = {
    grpc.StatusCode.UNAVAILABLE: (
        "Is the gateway running there? `reput serve --store DIR` starts one; --address names another."
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "Give it longer with --timeout SECONDS, or ask for less with -m.",
    grpc.StatusCode.UNIMPLEMENTED: "That address is no Reput gateway, or an older one.",
}


@contextlib.contextmanager
def gateway(address: str) -> Iterator[gateway_grpc.GatewayServiceStub]:
    """A stub on `address`; a failed call leaves the block as a `CliError`."""
    with _open_channel(address) as channel:
        try:
            yield gateway_grpc.GatewayServiceStub(channel)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address) from error


def _open_channel(address: str) -> grpc.Channel:
    """A channel with what the verb's flags say of TLS and keys."""
    from cli.security import given_security

    options = [("grpc.max_receive_message_length", RECEIVE_BYTES_MAX)]
    security = given_security()
    if security is None:
        return grpc.insecure_channel(address, options=options)
    from reput_client.security import ShowingInterceptor

    try:
        credentials = security.channel_credentials()
        metadata = security.metadata(address)
    except (OSError, ValueError) as error:
        usage_error(str(error), "`reput VERB --help` lists the flags for TLS and keys.")
    if credentials is None:
        channel = grpc.insecure_channel(address, options=options)
    else:
        channel = grpc.secure_channel(address, credentials, options=options)
    return channel if metadata is None else grpc.intercept_channel(channel, ShowingInterceptor(metadata))


def from_rpc_error(error: grpc.RpcError, address: str) -> CliError:
    """The failure as exit code, reason, message and advice."""
    code = error.code()
    reason = code.name
    with contextlib.suppress(ValueError):  # a status whose details contradict it is shown by its code alone
        status = rpc_status.from_call(error)
        info = error_details_pb2.ErrorInfo()
        for detail in status.details if status else ():
            if detail.Unpack(info):
                reason = info.reason
    message = error.details() or code.name
    if reason == code.name == "UNAVAILABLE":
        message = f"no answer from {address}: {message}"
    advice = ADVICE_BY_REASON.get(reason) or ADVICE_BY_CODE.get(code, "")
    return CliError(EXIT_BY_CODE.get(code, Exit.UNAVAILABLE), reason, message, advice)
