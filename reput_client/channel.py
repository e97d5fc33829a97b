"""Channels to a gateway: one set of options for all clients."""

import grpc

from reput_client.security import ClientSecurity, ShowingInterceptor, async_interceptors

# A page of bodies (under 4 MiB) with the properties of 1,000 messages.
RECEIVE_BYTES_MAX = 16 * 1024 * 1024
SERVICE = "/reput.gateway.v1.GatewayService/"

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # A gateway that vanished without a word is noticed within half a minute while something is under way.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A restarted gateway is found again soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Behind a name with several addresses (`dns:///gateway:8081`), calls go to all of them in turn; one that is going away or
    # was not there a moment ago is noticed within a second.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # retry.py is the one retry policy.
    ("grpc.enable_retries", 0),
    # The proxy that the environment names is for the web.
    ("grpc.enable_http_proxy", 0),
    # A channel of its own: what one client does, e.g. closing, concerns no other.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(target: str, security: ClientSecurity | None = None) -> grpc.Channel:
    """A channel to `HOST:PORT` or `unix:/path`; never blocks: calls on it fail if something is wrong there.

    Raises:
        OSError: a file of `security` cannot be read.
        ValueError: `security` does not fit the target.
    """
    credentials = security.channel_credentials() if security is not None else None
    if credentials is None:
        channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
    else:
        channel = grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
    metadata = security.metadata(target) if security is not None else None
    return channel if metadata is None else grpc.intercept_channel(channel, ShowingInterceptor(metadata))


def open_async_channel(target: str, security: ClientSecurity | None = None) -> grpc.aio.Channel:
    """The same for asyncio."""
    credentials = security.channel_credentials() if security is not None else None
    metadata = security.metadata(target) if security is not None else None
    interceptors = async_interceptors(metadata) if metadata is not None else None
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS, interceptors=interceptors)
    return grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS, interceptors=interceptors)
