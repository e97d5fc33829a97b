"""Channels to a gateway, with the same options for all clients."""

import grpc

from reput_client.reloading_channel import AsyncReloadingChannel, ReloadingChannel
from reput_client.security import ClientSecurity, CredentialsInterceptor, Pem, async_interceptors

# A page of bodies (under 4 MiB) with the properties of 1,000 messages.
RECEIVE_BYTES_MAX = 16 * 1024 * 1024
SERVICE = "/reput.gateway.v1.GatewayService/"

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # A gateway that vanished without closing its connection is noticed within 30 s while a call is under way.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A restarted gateway is connected to within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Despite its name, the time limit of one attempt to connect: enough for TLS over a slow network. gRPC's default is 20 s.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    # A name with several addresses (`dns:///gateway:8081`): calls go to all of them in turn, and the name is resolved again at
    # most once a second.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # retry.py is the one retry policy.
    ("grpc.enable_retries", 0),
    # The environment's HTTP proxy is not for gRPC.
    ("grpc.enable_http_proxy", 0),
    # Each client has its own connection: closing one does not affect another.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(target: str, security: ClientSecurity | None = None) -> grpc.Channel:
    """A channel to `HOST:PORT` or `unix:/path`. It connects with the first call.

    Raises:
        OSError: a file of `security` cannot be used.
        ValueError: `security` does not fit the target.
    """
    files = security.pem_files() if security is not None else None
    if files is None:
        channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
    else:
        channel = ReloadingChannel(
            files, lambda pem: grpc.secure_channel(target, pem.credentials(), options=CHANNEL_OPTIONS)
        )
    metadata = security.metadata(target) if security is not None else None
    return channel if metadata is None else grpc.intercept_channel(channel, CredentialsInterceptor(metadata))


def open_async_channel(target: str, security: ClientSecurity | None = None) -> grpc.aio.Channel:
    """The same for asyncio."""
    files = security.pem_files() if security is not None else None
    metadata = security.metadata(target) if security is not None else None
    interceptors = async_interceptors(metadata) if metadata is not None else None
    if files is None:
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS, interceptors=interceptors)

    def make(pem: Pem) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(target, pem.credentials(), options=CHANNEL_OPTIONS, interceptors=interceptors)

    return AsyncReloadingChannel(files, make)
